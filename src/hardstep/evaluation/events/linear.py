"""Linear maps of changed values, by the weights that single numbers are added with."""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Layout
from hardstep.evaluation.events.linear_stages import write_lanes, write_scatter
from hardstep.evaluation.events.maps import list_by
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.events.program import Fixed, Lookup, Slot, Table, Word, slot_words
from hardstep.evaluation.fused.expressions import Unfusable

MOST_ENTRIES = 1 << 24  # of a list of single weights


def as_index(values: Tensor) -> Fixed:
    """Numbers as kernels read them, in 32 bits."""
    if values.numel() and values.max() > torch.iinfo(torch.int32).max:
        raise Unfusable("a layer has more weights than 32 bits can number")
    return Fixed(values.to(torch.int32).contiguous())


def scatter_events(
    planner: Planner, slot: Slot, target: Slot, source: Tensor, place: Tensor, weights: Table
) -> None:
    """A stage that adds to each `place` what `source` changes by, times a weight."""
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    lanes = planner.program.lanes
    pairs = _pair_vectors(slot.layout, target.layout, source, place, lanes)
    if pairs is None:
        words += [Fixed(list_by(source, slot.size)), as_index(place), weights]
        name, write = "weights", partial(write_scatter, kind=slot.kind)
    else:
        first, second, number = pairs

        def make(values: Lookup) -> Tensor:
            given = weights.make(values)
            spread = given.new_zeros(len(first), lanes)
            spread[number, place % lanes] = given
            return spread

        words += [Fixed(list_by(first, slot.size // lanes)), as_index(second)]
        words += [as_index(torch.arange(len(first))), Table(("in lanes", weights.key), make)]
        name, write = "lanes", partial(write_lanes, kind=slot.kind)
    planner.stage(name, write, words, target.level - 0.5, [slot, target])


def _pair_vectors(
    old: Layout, new: Layout, source: Tensor, place: Tensor, lanes: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Vectors that single numbers go from and to, and the pair of each, if lanes meet their like.

    Numbers that no entry names are multiplied by 0; so whoever reads a lane must have an entry.
    """
    if not torch.equal(source % lanes, place % lanes):
        return None
    vectors = new.size // lanes
    key, number = torch.unique((source // lanes) * vectors + place // lanes, return_inverse=True)
    first, second = key // vectors, key % vectors
    given = torch.zeros(len(key), lanes, dtype=torch.bool)
    given[number, place % lanes] = True
    if len(source) != int(given.sum()) or bool(
        (new.named.reshape(-1, lanes)[second] > given).any()
    ):
        return None
    return first, second, number
