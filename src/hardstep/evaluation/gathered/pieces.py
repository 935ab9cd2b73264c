"""A few candidates of a tile at a time: what each piece is given, and pieces put together."""

from collections.abc import Iterable

import torch
from torch import Tensor

from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.columns import Column


def take_some(change: Change, part: slice) -> Change:
    """A change of some of the candidates."""
    if isinstance(change, Column):
        return Column(change.axis, change.unit[part], change.slices[part])
    assert isinstance(change, Stacked)
    return Stacked(change.values[part])


def join(parts: list[Reader], whole: Reader, kept: Iterable[int]) -> Reader:
    """What pieces computed, one behind the other."""
    for part in parts:
        whole.cuts.update(part.cuts)
    for index in kept:
        found = [part.env.get(index) for part in parts]
        pieces = [
            _expand(whole, part.num, index, one) for part, one in zip(parts, found, strict=True)
        ]
        if any(isinstance(one, Tensor) for one in found):
            whole.env[index] = torch.cat(pieces)
        elif any(isinstance(one, Stacked) for one in found):
            whole.env[index] = Stacked(torch.cat(pieces))
    return whole


def _expand(
    whole: Reader, num: int, index: int, found: Tensor | Change | Outer | Deferred | None
) -> Tensor:
    """A piece's value for each of its candidates; the base's where none of them changes it."""
    if isinstance(found, Stacked):
        return found.values
    if isinstance(found, Tensor):
        return found.expand(num, *found.shape[1:])
    if whole.scene.places[index] is None:
        base = whole.scene.base(index)
    else:
        base, cut = whole.lifts.of(index), whole.cuts.get(index)
        base = base if cut is None else base.narrow(1 + cut.dim, cut.start, cut.length)
    return base.expand(num, *base.shape)
