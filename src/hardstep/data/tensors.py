"""A data set from tensors of one's own, split the way the bundled ones are.

The test part is the same for every run seed; the validation part is drawn anew from the rest by
the seed. Classes keep their shares in every part, to within one example.
"""

from typing import Any

import torch
from torch import Tensor

from hardstep.data.base import DataSet, Split
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
) -> DataSet:
    """Train, validation and guarded test parts of these examples.

    Args:
        inputs: (N, ...), a tensor or array; floating point, or torch.long for indices.
        labels: Whole numbers (N,) are classes, floating point (N, ...) are numbers to predict.
        seed: Of the run; chooses the validation part.
        name: What the data set is called.
        valid: Share of what is not test.
        test: Share of all examples, or the (inputs, labels) of a test set that exists already.

    Raises:
        ConfigError: A share leaves a part empty.
        DataError: Inputs and labels do not fit each other, or are of no usable type.
    """
    rest = _split(name, inputs, labels)
    if isinstance(test, tuple):
        held = _split(name, *test)
    else:
        rest, held = _shared_out(rest, test, generator(0, "test part"), f"{name}: test")
    train, chosen = _shared_out(rest, valid, generator(seed, "validation"), f"{name}: valid")
    if rest.labels.is_floating_point():
        return DataSet(name, train, chosen, held)
    num_classes = 1 + max(int(part.labels.max()) for part in (rest, held))
    return DataSet(name, train, chosen, held, num_classes)


def _split(name: str, inputs: Any, labels: Any) -> Split:
    """The examples in the types that models and losses expect."""
    try:
        x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: examples are not tensors or arrays of numbers: {error}") from None
    if not x.dim() or not y.dim() or not len(x):
        raise DataError(f"{name}: there are no examples in inputs {tuple(x.shape)}")
    return Split(_standard(x), _standard(y) if y.is_floating_point() else y.long())


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
