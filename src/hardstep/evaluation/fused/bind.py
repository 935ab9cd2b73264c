"""A planned kernel with the numbers of a step: its tables, and its calls tile by tile."""

from collections.abc import Mapping
from threading import get_ident

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.kernel_plan import (
    ColumnEntry,
    Entry,
    KernelPlan,
    LayerEntry,
    LinearEntry,
)
from hardstep.evaluation.fused.layouts import Inputs, respond
from hardstep.evaluation.fused.record_tables import Tables
from hardstep.evaluation.fused.tables import Displaced, OfRecord, Replaced, Units
from hardstep.evaluation.incremental.columns import Column, carry_columns, slices_of
from hardstep.evaluation.trace.nodes import Refused
from hardstep.subspaces import LinearMove

TABLE_BYTES = 8 << 20  # what the tables made for a tile may take
MAX_TILE = 16384  # beyond that, nothing is gained
MIN_TILE = 512  # below that, starting the kernel shows
TILES = 64  # of a step, about, so that workers can share them


class Kernel:
    """One block in one step."""

    def __init__(self, plan: KernelPlan, tables: Tables) -> None:
        self.plan, self.tables = plan, tables
        self._check_finite()
        self.num_examples = plan.program.num_examples
        # Whole vectors, an odd number of them: a kernel reads one vector of many units, and with a
        # power of two between them they would all fall into the same few places of a cache.
        self.stride = (-(-self.num_examples // plan.lanes) | 1) * plan.lanes
        self.order = self._sort_examples()
        self._rooms: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by thread and table
        self._replaced = [one for one in plan.program.tables if isinstance(one, Replaced)]
        self._displaced = [one for one in plan.program.tables if isinstance(one, Displaced)]
        self.fixed = {
            slot: tables.get(table, self.order, self.stride)
            for table, slot in plan.program.tables.items()
            if isinstance(table, OfRecord)
        }

    def _check_finite(self) -> None:
        """What is added to infinity is lost, and a candidate may well be finite there."""
        program = self.plan.program
        updated = program.updated | {entry.output for entry in self.plan.entries}
        for index in updated | {closing.output for closing in program.closings}:
            if not self.tables.is_finite(index):
                raise Refused("the forward pass has values that are not finite")

    def _sort_examples(self) -> Tensor | None:
        """Examples that take the same way through the network next to each other."""
        index = self.plan.program.order_by
        return None if index is None else self.tables.sort_examples(index)

    def tile_size(self, offsets: tuple[int, ...], memory_budget: int) -> int:
        """Candidates at once: whole particles, as many as the tables made for them allow.

        Args:
            offsets: The shape of the candidates' offsets (particles, vertices, probes, dim).
            memory_budget: Bytes that they may take.
        """
        particles, vertices, probes, dim = offsets
        vertices *= probes
        item, taken, copied = 64 // self.plan.lanes, 0.0, 0.0  # numbers of one candidate
        for entry in self.plan.entries:
            if isinstance(entry, LinearEntry) and entry.responses is None:
                continue
            lines = 1.0
            if not isinstance(entry, ColumnEntry):
                units = self.tables.written.values[entry.output].shape[1]
                lines = (units if isinstance(entry, LayerEntry) else 1) * dim / vertices
                copied += lines * self._inputs(entry).copied
            taken += lines * self.stride
        for table in self._displaced:
            taken += 2 * self.tables.written.values[table.index].shape[0]
        size = min(MAX_TILE, max(MIN_TILE, particles * vertices // TILES))
        if taken:
            size = min(size, int(TABLE_BYTES / (taken * item)))
            size = min(size, int(memory_budget / ((taken + copied) * item)))
        return max(vertices, size // vertices * vertices)

    def sums(self, candidates: Candidates, tile: Span) -> dict[int, Tensor]:
        """What each closing sum is for every candidate."""
        num = tile.end - tile.start
        found = self.fixed | self._make_tables(candidates, tile)
        outputs = torch.zeros(len(self.plan.program.closings), num, dtype=torch.float64)
        ordered = [found[slot].contiguous() for slot in range(len(self.plan.program.tables))]
        ordered += list(outputs)
        run_kernel(self.plan.text, ordered, num, self.num_examples, self.stride, self.plan.scratch)
        values, results = self.tables.written.values, {}
        for closing, total in zip(self.plan.program.closings, outputs, strict=True):
            divisor = values[int(closing.divisor)].double() if closing.by_value else closing.divisor
            base = values[closing.output]
            gains = (total / divisor).reshape(num, *base.shape)
            results[closing.output] = (base.double() + gains).to(base.dtype)
        return results

    # -- what belongs to a tile ---------------------------------------------------------------

    def _make_tables(self, candidates: Candidates, tile: Span) -> dict[int, Tensor]:
        slots, entries = self.plan.program.tables, self.plan.entries
        index, offsets = candidates.coordinates(tile)
        own: dict[int, Tensor] = {}
        columns: dict[int, Column] = {}
        move = None
        if any(isinstance(entry, LinearEntry) for entry in entries):
            move = candidates.subspace.linear(tile.block, index, offsets)
            if move is None:
                raise Unfusable("a candidate changes two units")
            own[slots[Units()]] = move.unit
        made = any(isinstance(entry, ColumnEntry) for entry in entries)
        if (made or self._replaced or self._displaced) and Units() in slots:
            columns = self._change_parameters(candidates, tile)
            own[slots[Units()]] = next(iter(columns.values())).unit
        for entry in entries:
            if isinstance(entry, LayerEntry):
                own |= self._move_layer(entry, candidates, tile, index, offsets)
            elif isinstance(entry, ColumnEntry):
                own[entry.column] = self._change_column(entry, columns)
            else:
                assert move is not None
                own |= self._move_along(entry, move)
        changed = candidates.changed(tile) if self._replaced and not columns else {}
        for table in self._replaced:
            if columns:
                own[slots[table]] = columns[table.index].slices
            else:
                (own[slots[table]],) = changed.values()
        for moved in self._displaced:
            own[slots[moved]] = self._displace(moved, columns)
        return own

    def _displace(self, table: Displaced, columns: Mapping[int, Column]) -> Tensor:
        new, old = columns[table.index], self.tables.written.values[table.index]
        return new.slices - slices_of(old, new.axis, new.unit)

    def _change_parameters(self, candidates: Candidates, tile: Span) -> dict[int, Column]:
        """Changed weight rows, through what the model does to them."""
        local = candidates.local(tile)
        if local is None:
            raise Unfusable("a candidate changes two units")
        sources = self.tables.written.sources
        env = {sources[name]: Column(0, unit, new) for name, (unit, new) in local.items()}
        for node in self.plan.before:
            base = self.tables.written.values.__getitem__
            changes = carry_columns(node, env, base, self.plan.operators)
            assert changes is not None
            env.update(zip(node.outputs, changes, strict=True))
        return env

    def _examples(self, entry: Entry) -> Tensor:
        """Those that meet the weight, (inputs, examples)."""
        return self.tables.get(entry.examples, self.order, self.stride)

    def _inputs(self, entry: Entry) -> Inputs:
        """The same, and which of the inputs vary."""
        return self.tables.inputs(entry.examples, self.order, self.stride, self.num_examples)

    def _change_column(self, entry: ColumnEntry, columns: Mapping[int, Column]) -> Tensor:
        """The old column plus what changed, so that nothing changes where no weight does."""
        weight, values = columns[entry.right], self.tables.written.values
        result = self.tables.get(entry.old, self.order, self.stride)[weight.unit]
        result.addmm_(weight.slices - values[entry.right].T[weight.unit], self._examples(entry))
        moved = columns.get(entry.bias) if entry.bias is not None else None
        if entry.bias is not None and moved is not None:
            result += (moved.slices - values[entry.bias][weight.unit])[:, None]
        return result

    def _move_along(self, entry: LinearEntry, move: LinearMove) -> dict[int, Tensor]:
        dtype, responses = self.tables.written.values[entry.output].dtype, entry.responses
        own = {entry.shift: move.shift.to(dtype), entry.lengths: move.lengths.to(dtype)}
        own[entry.places] = move.places
        if responses is not None:
            assert move.directions is not None
            own[responses] = self._respond(responses, move.directions, self._inputs(entry))
        return own

    def _move_layer(
        self, entry: LayerEntry, candidates: Candidates, tile: Span, index: Tensor, offsets: Tensor
    ) -> dict[int, Tensor]:
        start, counts = torch.unique_consecutive(index[:, 0], return_counts=True)
        first = torch.cumsum(counts, 0) - counts
        directions = candidates.subspace.directions(tile.block, index[first].reshape(-1))
        assert directions is not None
        inputs = self._inputs(entry)
        flat = directions.reshape(-1, len(inputs.table))
        number = torch.repeat_interleave(torch.arange(len(start)), counts)
        live = torch.where(index >= 0, offsets, 0).to(inputs.table.dtype)
        responses = self._respond(entry.responses, flat, inputs)
        return {entry.responses: responses, entry.particles: number, entry.lengths: live}

    def _respond(self, slot: int, directions: Tensor, inputs: Inputs) -> Tensor:
        """What the examples make of the directions, in memory that the next tile uses again."""
        num, like = len(directions), inputs.table
        key = get_ident(), slot
        if key not in self._rooms or len(self._rooms[key][0]) < num:
            room = like.new_empty(num, self.stride)
            room[:, self.num_examples :] = 0  # the others are written to for every tile
            self._rooms[key] = room, like.new_empty(num, inputs.copied)
        responses, room = (memory[:num] for memory in self._rooms[key])
        respond(directions.to(like.dtype), inputs, responses[:, : self.num_examples], room)
        return responses
