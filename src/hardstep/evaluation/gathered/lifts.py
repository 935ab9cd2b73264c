"""The base's values with examples in front, and which examples of candidates differ from them."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from torch import Tensor

from hardstep.evaluation.gathered.scene import Scene
from hardstep.evaluation.incremental.columns import Column, slices_of


class Lifts:
    """Base values as (examples, *own shape), each made once a step."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._kept: dict[int, Tensor] = {}
        self._derived: dict[Hashable, Tensor] = {}

    def derive(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """Something else that is the same for all candidates of a step."""
        if key not in self._derived:
            self._derived[key] = compute()
        return self._derived[key]

    def of(self, index: int) -> Tensor:
        """One of them."""
        if index not in self._kept:
            place = self.scene.places[index]
            assert place is not None
            self._kept[index] = place.lift(self.scene.base(index), self.scene.num)
        return self._kept[index]


class Pairs(NamedTuple):
    """Which examples of which candidates differ from the base."""

    candidate: Tensor
    example: Tensor


def differing_examples(scene: Scene, index: int, column: Column) -> Tensor:
    """(n, examples): where a column of a value of examples is not the base's."""
    base = slices_of(scene.base(index), column.axis, column.unit)
    place = scene.places[index]
    assert place is not None
    place.check_dim(column.axis, "a changed parameter")
    at = 1 + place.axis - (column.axis < place.axis)
    differs = column.slices != base
    shape = differs.shape
    parts = [*shape[:at], place.outer, scene.num, place.inner, *shape[at + 1 :]]
    return differs.reshape(parts).movedim(at + 1, 1).flatten(2).any(dim=2)
