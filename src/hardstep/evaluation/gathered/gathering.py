"""The examples that candidates change, of many candidates in one batch, on their way to the loss.

While a change is one column it is carried as such. From where it is not, the examples that differ
run through the rest of the slice together: products are shared, since all of them meet the base's
weights. Of a value of which the loss sees a few tokens, only these are computed.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.gathered.lifts import Lifts, Pairs, differing_examples
from hardstep.evaluation.gathered.outer import Outer, pad
from hardstep.evaluation.gathered.pass_runs import find_differing
from hardstep.evaluation.gathered.passes import Passes
from hardstep.evaluation.gathered.pieces import join, take_some
from hardstep.evaluation.gathered.plan import Plan
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.rows import (
    FEW,
    Region,
    RowReader,
    add_rows,
    fill_in,
    find_rows,
    follow_rows,
    plan_rows,
    put_back,
    take_rows,
)
from hardstep.evaluation.gathered.runner import Runner
from hardstep.evaluation.gathered.scene import Cut, Sum
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.incremental.walk import Walk, start_changes
from hardstep.evaluation.trace.nodes import Node

PIECE_BYTES = 2 << 20  # of the largest value of candidates whose examples run together
PASS_BYTES = 16 << 20  # the same where passes take less time than what calls them
LARGE = 8  # times smaller values than the largest are joined for many candidates
DENSE = 0.75  # from this share of changed examples on, all of them are computed


class Gathering:
    """How the examples of a tile pass through a slice."""

    def __init__(self, walk: Walk, plan: Plan, lifts: Lifts, passes: Passes | None = None) -> None:
        self.walk, self.plan, self.lifts = walk, plan, lifts
        self.passes = passes
        self.scene = plan.scene
        self.piece = self._find_piece(walk.largest)
        self._runner = Runner(walk, plan, lifts, passes)

    def _find_piece(self, largest: int) -> int:
        """How many candidates run together whose largest value has so many bytes."""
        return max(1, (PIECE_BYTES if self.passes is None else PASS_BYTES) // max(1, largest))

    def losses(self, candidates: Candidates, tile: Span) -> Tensor:
        """The losses of a tile."""
        num = tile.end - tile.start
        if self.passes is not None:
            self.passes.candidates += num
        changes = start_changes(candidates, tile)
        sources = self.walk.record.sources
        env: dict[int, Change] = {sources[name]: change for name, change in changes.items()}
        left = {node.outputs for node in self.walk.carry_columns(env)}
        nodes = [node for node in self.plan.nodes if node.outputs in left]
        used = {index for node in nodes for index in node.inputs}
        env = {index: change for index, change in env.items() if index in used}
        reached = self._find_reached(env, nodes, num)
        if not bool(reached.any()):
            return self.walk.base(self.walk.record.result).expand(num)
        if float(reached.double().mean()) < DENSE:
            read = Reader(self.lifts, num, Pairs(*reached.nonzero(as_tuple=True)))
            read.env.update(env)
            self._runner.run(read, nodes, "pairs")
        else:
            read = self._run_all(nodes, env, num)
        closed: dict[int, Change] = {
            i: change for i, change in read.env.items() if isinstance(change, Stacked)
        }
        return self.walk.finish(closed, self.plan.after, None, num)

    # -- which examples ------------------------------------------------------------------------

    def _find_reached(self, env: Mapping[int, Change], nodes: list[Node], num: int) -> Tensor:
        """(candidates, examples) in which anything differs."""
        device = self.walk.base(self.walk.record.result).device
        reached = torch.zeros(num, self.scene.num, dtype=torch.bool, device=device)
        for node in nodes:
            for index in node.inputs:
                if index in env:
                    reached = reached | self._reach(node, index, env[index]).to(device)
        return reached

    def _reach(self, node: Node, index: int, change: Change) -> Tensor:
        call = self.plan.call(node)
        if isinstance(change, Column):
            if self.scene.places[index] is not None:
                return differing_examples(self.scene, index, change)
            if call is not None and call.reaches is not None:
                return call.reaches(self.scene, change)
        return torch.ones(1, 1, dtype=torch.bool)

    # -- all examples --------------------------------------------------------------------------

    def _run_all(self, nodes: list[Node], env: Mapping[int, Change], num: int) -> Reader:
        """All examples: of what a hard choice alters only the rows, if these are few."""
        region = self.plan.region
        skipped = len(self.plan.nodes) - len(nodes)  # that columns have passed
        if region is not None and region.before > skipped and not self._fills(region, env):
            found = self._find_rows(region, nodes[: region.before - skipped], env, num)
            if found is not None:
                return self._run_rows(region, nodes[region.before - skipped :], *found, num)
        return self._run_in_pieces(nodes, env, num)

    def _fills(self, region: Region, env: Mapping[int, Change]) -> bool:
        """Whether a value with a changed unit, so that all its rows differ, enters a region."""
        entering = [(i, env[i]) for i in region.starts if isinstance(env.get(i), Column)]
        read = Reader(self.lifts, 0, None)
        return any(isinstance(c, Column) and read.is_unit(i, c) for i, c in entering)

    def _run_in_pieces(self, nodes: list[Node], env: Mapping[int, Change], num: int) -> Reader:
        """A few candidates at a time, as far as values are large."""
        large = [n for n, node in enumerate(nodes) if self._is_large(node)]
        middle = large[-1] + 1 if large else 0
        kept = {index for node in nodes[middle:] for index in node.inputs} | self._runner.behind
        parts: list[Reader] = []
        entry = self._find_entry(nodes, env) if self.passes is None else None
        first = entry.end if entry is not None and entry.end < middle else 0
        start, size = 0, 1
        while middle and start < num:  # the first candidate shows how large values are
            parts.append(self._begin(env, slice(start, min(start + size, num))))
            if entry is not None and first:
                self._enter_rows(parts[-1], entry, nodes)
            self._runner.run(parts[-1], nodes[first:middle], "pieces", kept)
            start, size = start + size, size if start else self._find_piece(parts[0].largest)
        read = join(parts, self._begin(env, slice(0, num)), kept - env.keys())
        self._runner.run(read, nodes[middle:], "joined")
        return read

    def _find_entry(self, nodes: list[Node], env: Mapping[int, Change]) -> Region | None:
        """Where only the token runs on that a parameter changes, such as one of positions."""
        (index, change), *others = env.items()
        place = self.scene.places[index]
        if others or place is None or not isinstance(change, Column):
            return None
        dim = place.check_dim(change.axis, "a changed parameter")
        region = follow_rows(self.scene, nodes, 0, {index: dim})
        inside = nodes[: region.end]
        asked = [any(self.plan.parts[node.outputs[0]]) for node in inside]
        products = [self.plan.is_product(node) for node in inside]
        return region if any(products) and not any(asked) else None

    def _enter_rows(self, read: Reader, region: Region, nodes: list[Node]) -> None:
        """The changed token of every example through the operations that keep tokens apart."""
        (start,) = region.starts
        column = read.column(start)
        assert column is not None
        values = read.lift_column(start, column)
        candidate = torch.arange(read.num, device=values.device).repeat_interleave(self.scene.num)
        example = torch.arange(self.scene.num, device=values.device).repeat(read.num)
        rows = RowReader(self.lifts, read.num, Pairs(candidate, example), column.unit[candidate])
        dim = region.dims[start]
        rows.put(start, values.flatten(0, 1).unsqueeze(1 + dim).unsqueeze(0), Cut(dim, 0, 1))
        parts = plan_rows(self.scene, nodes, region)
        self._runner.run(rows, nodes[: region.end], "entry", region.leaving, parts)
        read.env.clear()
        read.env.update(fill_in(rows, region, self.lifts))

    def _is_large(self, node: Node) -> bool:
        """Whether an operation reads or makes large values of examples, or parts of values."""
        asked, out = self.plan.parts[node.outputs[0]]
        cuts = {**asked, **dict.fromkeys(node.outputs, out)}
        values = [i for i in (*node.inputs, *node.outputs) if self.scene.places.get(i) is not None]
        sizes = [self._count_bytes(index, cuts.get(index)) for index in values]
        return max(sizes, default=0) > self.walk.largest / LARGE

    def _count_bytes(self, index: int, cut: Cut | None) -> float:
        """Of a part of a value."""
        share = 1.0 if cut is None else cut.length / self.scene.shape(index)[cut.dim]
        return self.walk.base(index).nbytes * share

    def _list_pieces(self, num: int) -> list[slice]:
        starts = range(0, num, self.piece)
        return [slice(start, min(start + self.piece, num)) for start in starts]

    def _begin(self, env: Mapping[int, Change], part: slice) -> Reader:
        read = Reader(self.lifts, part.stop - part.start, None)
        read.env.update({index: take_some(change, part) for index, change in env.items()})
        if self.passes is not None:
            read.spread_rows()
        return read

    # -- rows ----------------------------------------------------------------------------------

    def _find_rows(
        self, region: Region, nodes: list[Node], env: Mapping[int, Change], num: int
    ) -> tuple[Tensor, dict[int, Tensor]] | None:
        """Candidate, example and index of rows that a choice alters, and the rows; if few."""
        found, chosen = [], defaultdict[int, list[Tensor]](list)
        for part in self._list_pieces(num):
            read = self._begin(env, part)
            self._runner.run(read, nodes, "choice", region.starts)
            changed = [index for index in region.starts if read.is_changed(index)]
            differs = self._differ(region, changed, read)
            if part.start == 0 and float(differs.double().mean()) > FEW:
                return None
            at = differs.nonzero().T
            found.append(at + torch.tensor([[part.start], [0], [0]], device=at.device))
            for index in region.starts:
                chosen[index].append(self._take_rows(read, index, at, region.dims[index]))
        return torch.cat(found, dim=1), {i: torch.cat(rows) for i, rows in chosen.items()}

    def _differ(self, region: Region, changed: list[int], read: Reader) -> Tensor:
        """(candidates, examples, indices): whether anything that enters a region is changed."""
        shape = self.scene.shape(region.starts[0])[region.dims[region.starts[0]]]
        total = torch.zeros(*read.lead, shape, dtype=torch.bool)
        for index in changed:
            dim, outer = region.dims[index], read.env[index]
            base = self.lifts.of(index)
            if isinstance(outer, Outer) and outer.is_recorded:
                total |= outer.find_rows(base.dim() - 1, dim)
            elif self.passes is not None and dim == 0 and base.dim() == 3:
                total |= find_differing(read.widen(read.read_whole(index)), base)
            else:
                total |= find_rows(read.widen(read.read_whole(index)), base, dim)
        return total

    def _take_rows(self, read: Reader, index: int, at: Tensor, dim: int) -> Tensor:
        """Rows of a value at places (3, rows), whether it is changed or not."""
        outer = read.env.get(index)
        if not isinstance(outer, Outer):
            read.asked = {}
            return take_rows(read.widen(read.read(index)), at, dim)
        taken = outer.change(
            lambda part: take_rows(pad(part, self.lifts.of(index).dim() - 1), at, dim)
        )
        return taken.build()

    def _run_rows(
        self,
        region: Region,
        nodes: list[Node],
        at: Tensor,
        values: Mapping[int, Tensor],
        num: int,
    ) -> Reader:
        """Rows through a region, then the examples that have any of them."""
        candidate, example, index = at
        if not len(index):
            read = Reader(self.lifts, num, None)
            base = self.walk.base(self.walk.record.result)
            read.env[self.walk.record.result] = Stacked(base.expand(num))
            return read
        rows = RowReader(self.lifts, num, Pairs(candidate, example), index)
        for start, own in values.items():
            rows.put(start, own.unsqueeze(0), Cut(region.dims[start], 0, 1))
        length = region.end - region.before
        self._runner.run(rows, nodes[:length], "rows", region.leaving, self.plan.row_parts)
        behind = nodes[length:]
        adds = self._find_sum(region, behind)
        if adds is not None:
            (leaving,), out = region.leaving, behind[0].outputs[0]
            pairs, total = add_rows(rows, leaving, out, adds, self.lifts)
            whole, behind = {out: total}, behind[1:]
        else:
            pairs, whole = put_back(rows, region, self.lifts)
        read = Reader(self.lifts, num, pairs)
        read.env.update({i: value.unsqueeze(0) for i, value in whole.items()})
        self._runner.run(read, behind, "whole")
        return read

    def _find_sum(self, region: Region, behind: list[Node]) -> Sum | None:
        """The sum over all rows that a region ends with, if nothing else reads them."""
        call = self.plan.call(behind[0]) if behind else None
        if call is None or call.adds is None or len(region.leaving) != 1:
            return None
        (leaving,) = region.leaving
        others = {i for node in behind[1:] for i in node.inputs} | self._runner.behind
        same = call.adds.dim == region.dims[leaving] and behind[0].inputs == (leaving,)
        return call.adds if same and leaving not in others else None
