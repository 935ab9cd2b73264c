"""Sets of changed examples that differ from value to value, and how an operation reads several.

Along a running forward pass no set of pairs serves all values: a channel may have the base's spikes
at one time step and others at the next, and what it changed before is still in a membrane.
"""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.incremental.changes import Change, Examples, Pairs

NARROWED = 0.75  # shares of pairs up to this are worth a set of their own


@dataclass(frozen=True, eq=False)
class PassingPairs(Pairs):
    """Pairs of values that do not stay: nothing is kept under their addresses."""

    def _gather(self, value: Tensor, index: Tensor) -> Tensor:
        return value.index_select(0, index)

    @cached_property
    def mask(self) -> Tensor:
        """Whether each pair of a candidate and an example is one of these."""
        mask = self.candidate.new_zeros(self.num_candidates * self.num_examples, dtype=torch.bool)
        return mask.index_fill(0, self._flat, True)

    def places_of(self, fewer: "PassingPairs") -> Tensor:
        """Where pairs, all of which are among these, stand among these."""
        return (self.mask.cumsum(0) - 1).index_select(0, fewer._flat)

    def holds(self, other: "PassingPairs") -> bool:
        """Whether all of the others are among these."""
        return other is self or bool(self.mask.index_select(0, other._flat).all())

    def chosen(self, places: Tensor) -> "PassingPairs":
        """Some of them."""
        return PassingPairs(
            self.candidate[places], self.example[places], self.num_candidates, self.num_examples
        )


class Held(NamedTuple):
    """A change, and the pairs of its examples if it is one of examples."""

    change: Change
    pairs: PassingPairs | None = None


def find_pairs(differs: Tensor) -> PassingPairs | None:
    """The pairs at which a table (candidates, examples) is true; nothing if it never is."""
    candidate, example = differs.nonzero(as_tuple=True)
    return PassingPairs(candidate, example, *differs.shape) if len(candidate) else None


def join(sets: list[PassingPairs]) -> PassingPairs:
    """All pairs that are in one of the sets; one of them, if it holds the others."""
    return reduce(_join, sets)


def _join(first: PassingPairs, second: PassingPairs) -> PassingPairs:
    if first.holds(second):
        return first
    if second.holds(first):
        return second
    both = find_pairs((first.mask | second.mask).reshape(first.num_candidates, -1))
    assert both is not None
    return both


def widen(base: Tensor, change: Examples, own: PassingPairs, pairs: PassingPairs) -> Examples:
    """The same change with more pairs, at which the examples are the base's."""
    if own is pairs:
        return change
    values = pairs.examples_of(base)
    return Examples(values.index_copy(0, pairs.places_of(own), change.values))


def narrow(base: Tensor, held: Held) -> Held | None:
    """The change without examples that are the base's; nothing if all of them are."""
    change, pairs = held
    if not isinstance(change, Examples) or pairs is None:
        return held
    differs = change.values != pairs.examples_of(base)
    places = (differs.flatten(1).any(dim=1) if differs.dim() > 1 else differs).nonzero()[:, 0]
    if len(places) == 0:
        return None
    if len(places) > NARROWED * len(differs):
        return held
    return Held(Examples(change.values[places]), pairs.chosen(places))
