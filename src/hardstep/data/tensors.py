"""A data set from a user's tensors, split the way the bundled ones are.

The test part is the same for every run seed; the seed draws the validation part from the rest.
Classes keep their shares in every part, to within one example.

Examples have to be finite, labeled 0…C−1, and alike in training and test. A refusal says how many
examples are at fault and where the first is, as one would index it.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hardstep.data.dataset import DataSet, Split
from hardstep.errors import ConfigError, DataError
from hardstep.seeds import generator

_NUMBERS = "floating point if they are numbers to predict"


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
    num_classes = _count_classes(name, given.labels, num_classes)
    if isinstance(test, int | float):
        rest, held = _share_out(given, test, generator(0, "test part"), f"{name}: test")
    else:
        rest, held = given, _check_test(name, test, given, num_classes)
    train, chosen = _share_out(rest, valid, generator(seed, "validation"), f"{name}: valid")
    return DataSet(name, train, chosen, held, num_classes)


def _count_classes(name: str, labels: Tensor, num_classes: int | None) -> int | None:
    """How many classes there are; None where labels are numbers."""
    if labels.is_floating_point():
        if num_classes is not None:
            raise ConfigError(
                f"{name}: num_classes is {num_classes}, but floating-point labels are numbers to "
                "predict; make classes whole numbers"
            )
        return None
    num = 1 + int(labels.max()) if num_classes is None else num_classes
    _check_range(name, "labels", labels, num)
    return num


def _check_test(name: str, test: Any, training: Split, num_classes: int | None) -> Split:
    """The test set that was given."""
    if not isinstance(test, tuple) or len(test) != 2:
        kind = type(test).__name__
        raise ConfigError(
            f"{name}: test must be a share such as 0.2 or a pair (inputs, labels), got a {kind}"
        )
    held = _split(name, "test ", *test)
    _check_alike(name, training, held)
    if num_classes is not None:
        _check_range(name, "test labels", held.labels, num_classes)
    return held


def _split(name: str, part: str, inputs: Any, labels: Any) -> Split:
    """The examples in the types that models and losses expect."""
    try:
        x, y = _share_memory(inputs), _share_memory(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: examples are not tensors or arrays of numbers: {error}") from None
    if not x.dim() or not y.dim() or not len(x):
        raise DataError(f"{name}: there are no examples in {part}inputs {tuple(x.shape)}")
    whole = not y.is_floating_point() and not y.is_complex()
    split = Split(_convert(x), y.long() if whole else _convert(y))
    _check_finite(name, f"{part}inputs", x, split.inputs)
    _check_finite(name, f"{part}labels", y, split.labels)
    _check_classes(name, f"{part}labels", split.labels)
    return split


def _share_memory(values: Any) -> Tensor:
    """These numbers; a copy of arrays that torch cannot share: reversed, read-only, big-endian."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def _convert(values: Tensor) -> Tensor:
    """Numbers in the precision that models have, whole numbers as they are."""
    return values.to(torch.get_default_dtype()) if values.is_floating_point() else values


def _share_out(
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


# -- what examples have to be ---------------------------------------------------------------


class _Faults(NamedTuple):
    """Examples at fault."""

    num: int
    place: str  # of the first
    value: float | int


def _check_finite(name: str, what: str, given: Tensor, kept: Tensor) -> None:
    """Refuse numbers that are not finite in the precision they are kept in.

    Args:
        name: Of the data set.
        what: The numbers are: inputs or labels.
        given: As they came, to quote.
        kept: As models will see them.
    """
    if not kept.is_floating_point() or bool(kept.isfinite().all()):
        return
    found = _find_faults(~kept.isfinite(), given)
    held = not given[~kept.isfinite()][:1].isfinite().item()
    raise DataError(
        f"{name}: {what} of {found.num} of {len(kept)} examples are not finite, the first at "
        f"[{found.place}]: {found.value}{'' if held else f', too large for {kept.dtype}'}; leave "
        "these examples out, or fill in numbers"
    )


def _check_classes(name: str, what: str, labels: Tensor) -> None:
    """Refuse whole numbers that are not classes; other shapes than (N,) are left to the loss.

    Sequences and pictures of classes are such shapes; columns and one-hot rows are mistakes.
    """
    shape = tuple(labels.shape)
    if labels.is_floating_point():
        return
    if shape[1:] == (1,):
        raise DataError(
            f"{name}: {what} are whole numbers of shape {shape}, and classes have ({shape[0]},); "
            f"give {what}.flatten(), or {_NUMBERS}"
        )
    if len(shape) == 2 and bool(((labels == 0) | (labels == 1)).all() & (labels.sum(1) == 1).all()):
        raise DataError(
            f"{name}: {what} are one-hot, of shape {shape}, and classes have ({shape[0]},); give "
            f"{what}.argmax(1), or {_NUMBERS}"
        )
    if len(shape) == 1 and bool((labels < 0).any()):
        found = _find_faults(labels < 0, labels)
        raise DataError(
            f"{name}: {found.num} of {len(labels)} {what} are negative, the first at "
            f"[{found.place}]: {found.value}; number classes from 0, as "
            f"numpy.unique({what}, return_inverse=True)[1] does, or give {_NUMBERS}"
        )


def _check_range(name: str, what: str, labels: Tensor, num_classes: int) -> None:
    """Refuse labels of classes that there are not."""
    if bool((labels >= num_classes).any()):
        found = _find_faults(labels >= num_classes, labels)
        raise DataError(
            f"{name}: {found.num} of {len(labels)} {what} are none of the {num_classes} classes 0 "
            f"to {num_classes - 1}, the first at [{found.place}]: {found.value}; number all "
            f"alike, or say num_classes={int(labels.max()) + 1} if there are more"
        )


def _check_alike(name: str, training: Split, test: Split) -> None:
    """Refuse a test set whose examples have another shape or type than those for training."""
    pairs = {"inputs": (training.inputs, test.inputs), "labels": (training.labels, test.labels)}
    for what, (ours, theirs) in pairs.items():
        if _kind(ours) != _kind(theirs):
            raise DataError(
                f"{name}: {what} of a test example are {_kind(theirs)}, of one for training "
                f"{_kind(ours)}; make them alike"
            )


def _kind(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape[1:])}"


def _find_faults(wrong: Tensor, values: Tensor) -> _Faults:
    """What is wrong, by example."""
    num = int(wrong.flatten(start_dim=1).any(dim=1).sum()) if wrong.dim() > 1 else int(wrong.sum())
    first = tuple(wrong.nonzero()[0].tolist())
    return _Faults(num, ", ".join(map(str, first)), values[first].item())
