"""A data set from tensors of one's own, split the way the bundled ones are.

The test part is the same for every run seed; the validation part is drawn anew from the rest by
the seed. Classes keep their shares in every part, to within one example.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardstep.data.base import DataSet, Split
from hardstep.data.checks import check_alike, check_classes, check_finite, check_range
from hardstep.errors import ConfigError, DataError
from hardstep.seeds import generator


def from_tensors(
    inputs: Any,
    labels: Any,
    seed: int,
    *,
    name: str = "own",
    valid: float = 0.1,
    test: float | tuple[Any, Any] = 0.2,
    num_classes: int | None = None,
) -> DataSet:
    """Train, validation and guarded test parts of these examples.

    Args:
        inputs: (N, ...), a tensor or array; floating point, or torch.long for indices.
        labels: Whole numbers (N,) from 0 are classes, floating point (N, ...) are numbers to
            predict.
        seed: Of the run; chooses the validation part.
        name: What the data set is called.
        valid: Share of what is not test.
        test: Share of all examples, or the (inputs, labels) of a test set that exists already.
        num_classes: How many there are; one more than the largest label if left out. A class
            below that may be without examples, and a test set has none beyond.

    Raises:
        ConfigError: A share leaves a part empty.
        DataError: Inputs and labels do not fit each other, are of no usable type or not finite, or
            are no classes; or test examples are unlike those for training.
    """
    given = _split(name, "", inputs, labels)
    num_classes = _counted(name, given.labels, num_classes)
    if isinstance(test, int | float):
        rest, held = _shared_out(given, test, generator(0, "test part"), f"{name}: test")
    else:
        rest, held = given, _existing(name, test, given, num_classes)
    train, chosen = _shared_out(rest, valid, generator(seed, "validation"), f"{name}: valid")
    return DataSet(name, train, chosen, held, num_classes)


def _counted(name: str, labels: Tensor, num_classes: int | None) -> int | None:
    """How many classes there are; None where labels are numbers."""
    if labels.is_floating_point():
        if num_classes is not None:
            raise ConfigError(
                f"{name}: num_classes is {num_classes}, but floating-point labels are numbers to "
                "predict; make classes whole numbers"
            )
        return None
    num = 1 + int(labels.max()) if num_classes is None else num_classes
    check_range(name, "labels", labels, num)
    return num


def _existing(name: str, test: Any, training: Split, num_classes: int | None) -> Split:
    """The test set that was given."""
    if not isinstance(test, tuple) or len(test) != 2:
        kind = type(test).__name__
        raise ConfigError(
            f"{name}: test must be a share such as 0.2 or a pair (inputs, labels), got a {kind}"
        )
    held = _split(name, "test ", *test)
    check_alike(name, training, held)
    if num_classes is not None:
        check_range(name, "test labels", held.labels, num_classes)
    return held


def _split(name: str, part: str, inputs: Any, labels: Any) -> Split:
    """The examples in the types that models and losses expect."""
    try:
        x, y = _tensor(inputs), _tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: examples are not tensors or arrays of numbers: {error}") from None
    if not x.dim() or not y.dim() or not len(x):
        raise DataError(f"{name}: there are no examples in {part}inputs {tuple(x.shape)}")
    whole = not y.is_floating_point() and not y.is_complex()
    split = Split(_standard(x), y.long() if whole else _standard(y))
    check_finite(name, f"{part}inputs", x, split.inputs)
    check_finite(name, f"{part}labels", y, split.labels)
    check_classes(name, f"{part}labels", split.labels)
    return split


def _tensor(values: Any) -> Tensor:
    """These numbers; a copy of arrays that torch cannot share: reversed, read-only, big-endian."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def _standard(values: Tensor) -> Tensor:
    """Numbers in the precision that models have, whole numbers as they are."""
    return values.to(torch.get_default_dtype()) if values.is_floating_point() else values


def _shared_out(
    split: Split, share: float, draws: torch.Generator, what: str
) -> tuple[Split, Split]:
    """What is left and the share (rounded down), which has its part of every class."""
    num = len(split)
    order = torch.randperm(num, generator=draws)
    if not split.labels.is_floating_point() and split.labels.dim() == 1:
        order = order[torch.argsort(split.labels[order], stable=True)]
    # Every so many-th of an order that goes class by class; products such as 0.29 * 100 round down.
    marks = torch.floor(share * torch.arange(num + 1, dtype=torch.float64) + 1e-9)
    taken = torch.zeros(num, dtype=torch.bool)
    taken[order] = marks.diff() > 0
    if not 0 < int(taken.sum()) < num:
        raise ConfigError(f"{what} share {share} of {num} examples leaves one part empty")
    return split.select(~taken), split.select(taken)
