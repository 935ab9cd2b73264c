"""Normalization by the statistics of a batch, which every changed number alters a little."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.events.batch_stages import (
    SHARED,
    write_apply,
    write_normalize,
    write_statistics,
)
from hardstep.evaluation.events.layouts import Layout, rows_of_pixels
from hardstep.evaluation.events.linear import as_index
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import (
    Fixed,
    Lookup,
    Shared,
    Sums,
    Table,
    Vector,
    Word,
    slot_words,
)
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.trace.nodes import Node


@dataclass(frozen=True)
class Rows:
    """Vectors of which each lane has one channel: row r has vectors r·first + k·step, k < num."""

    is_plane: bool  # all lanes of a row have the same channel
    count: int
    first: int
    step: int
    num: int

    def number_vectors(self) -> Tensor:
        """The row of every vector."""
        found = torch.zeros(self.count * self.num, dtype=torch.long)
        row = torch.arange(self.count)[:, None]
        found[row * self.first + torch.arange(self.num) * self.step] = row
        return found

    def spread(self, line: Tensor, lanes: int) -> Tensor:
        """Numbers per channel as doubles at their lanes, (rows, lanes)."""
        if self.is_plane:
            return line.double()[:, None].repeat(1, lanes)
        return fill(line.double(), (0, self.count * lanes - len(line))).reshape(-1, lanes)


def find_rows(layout: Layout, lanes: int) -> Rows:
    """How the channels of a layout stand."""
    shape = tuple(layout.places.shape)
    channels, vectors = shape[0], layout.size // lanes
    if layout.axis == 0 and layout.key == rows_of_pixels(shape, lanes).key:
        each = -(-channels // lanes)
        return Rows(False, each, 1, each, vectors // each)
    length = layout.size // channels
    own = layout.places.reshape(channels, -1) // length
    if (
        layout.axis
        or length % lanes
        or not torch.equal(own, torch.arange(channels)[:, None] + 0 * own)
    ):
        raise Unfusable("batch norm of numbers whose channels are mixed")
    return Rows(True, channels, length // lanes, 1, length // lanes)


def normalize_by_batch(
    planner: Planner, node: Node, source: int, weight: Vector, bias: Vector, eps: float
) -> None:
    """Add up what changes, wait for all examples, then normalize the channels that changed."""
    lanes = planner.program.lanes
    slot, layout = planner.slot(source)
    rows = find_rows(layout, lanes)
    value = planner.base(source)
    dims = [dim for dim in range(value.dim()) if dim != 1]

    def mean(values: Lookup) -> Tensor:
        return values(source).double().mean(dims)

    def variance(values: Lookup) -> Tensor:
        return values(source).double().var(dims, unbiased=False)

    def table(name: str, make: Vector) -> Table:
        key = (name, node.outputs[0], layout.key)
        return Table(key, lambda values: rows.spread(make(values), lanes))

    target = planner.new_slot(node.outputs[0], layout, behind(slot))
    sums = Sums(8 * lanes * SHARED * rows.count)
    planner.program.sums.append(sums)
    means, level = table("batch mean", mean), target.level
    words: list[Word] = [*slot_words(slot), Fixed(layout.named_bits(lanes))]
    words += [as_index(rows.number_vectors()), means, Shared(sums)]
    write = partial(write_statistics, kind=slot.kind)
    planner.stage("statistics", write, words, level - 0.75, [slot])
    words = [means, table("batch variance", variance), table("weight", weight)]
    words += [table("bias", bias), Table(("eps", eps), lambda _: torch.tensor([eps]).double())]
    words += [Shared(sums), rows.count, value.numel() // value.shape[1]]
    wait = partial(write_normalize, kind=slot.kind, is_plane=rows.is_plane)
    planner.stage("normalize", wait, words, level - 0.5, [slot], detail=rows.is_plane, waits=True)
    words = [*slot_words(slot), *slot_words(target), Shared(sums)]
    words += [rows.count, rows.first, rows.step, rows.num]
    apply = partial(write_apply, kind=slot.kind)
    planner.stage("apply", apply, words, level - 0.25, [slot, target])
    planner.put(node, target)
