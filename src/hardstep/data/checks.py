"""What examples of one's own have to be: finite, labelled 0…C−1, and alike in training and test.

A refusal says how many examples are at fault and where the first is, as one would index it.
"""

from typing import NamedTuple

from torch import Tensor

from hardstep.data.base import Split
from hardstep.errors import DataError

_NUMBERS = "floating point if they are numbers to predict"


class _Faults(NamedTuple):
    """Examples at fault."""

    num: int
    place: str  # of the first
    value: float | int


def check_finite(name: str, what: str, given: Tensor, kept: Tensor) -> None:
    """Refuse numbers that are not finite in the precision they are kept in.

    Args:
        name: Of the data set.
        what: The numbers are: inputs or labels.
        given: As they came, to quote.
        kept: As models will see them.
    """
    if not kept.is_floating_point() or bool(kept.isfinite().all()):
        return
    found = _faults(~kept.isfinite(), given)
    held = not given[~kept.isfinite()][:1].isfinite().item()
    raise DataError(
        f"{name}: {what} of {found.num} of {len(kept)} examples are not finite, the first at "
        f"[{found.place}]: {found.value}{'' if held else f', too large for {kept.dtype}'}; leave "
        "these examples out, or fill in numbers"
    )


def check_classes(name: str, what: str, labels: Tensor) -> None:
    """Refuse whole numbers that are not classes; of other shapes than (N,) the loss is the judge.

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
        found = _faults(labels < 0, labels)
        raise DataError(
            f"{name}: {found.num} of {len(labels)} {what} are negative, the first at "
            f"[{found.place}]: {found.value}; number classes from 0, as "
            f"numpy.unique({what}, return_inverse=True)[1] does, or give {_NUMBERS}"
        )


def check_range(name: str, what: str, labels: Tensor, num_classes: int) -> None:
    """Refuse labels of classes that there are not."""
    if bool((labels >= num_classes).any()):
        found = _faults(labels >= num_classes, labels)
        raise DataError(
            f"{name}: {found.num} of {len(labels)} {what} are none of the {num_classes} classes 0 "
            f"to {num_classes - 1}, the first at [{found.place}]: {found.value}; number all "
            f"alike, or say num_classes={int(labels.max()) + 1} if there are more"
        )


def check_alike(name: str, training: Split, test: Split) -> None:
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


def _faults(wrong: Tensor, values: Tensor) -> _Faults:
    """What is wrong, by example."""
    num = int(wrong.flatten(start_dim=1).any(dim=1).sum()) if wrong.dim() > 1 else int(wrong.sum())
    first = tuple(wrong.nonzero()[0].tolist())
    return _Faults(num, ", ".join(map(str, first)), values[first].item())
