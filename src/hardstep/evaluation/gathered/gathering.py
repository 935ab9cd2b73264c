"""The examples that candidates change, of many candidates in one batch, on their way to the loss.

While a change is one column it is carried as such. From where it is not, the examples that differ
run through the rest of the slice together: products are shared, since all of them meet the base's
weights. Of a value of which the loss sees a few tokens, only these are computed.
"""

from collections.abc import Container, Iterable, Mapping

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.reader import Lifts, Pairs, Reader, differing_examples
from hardstep.evaluation.gathered.rows import (
    FEW,
    Region,
    RowReader,
    find_region,
    find_rows,
    plan_parts,
    put_back,
)
from hardstep.evaluation.gathered.scene import Call, Cut, Scene
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.incremental.walk import Walk, attempt, carry_whole, start_changes
from hardstep.evaluation.trace.record import Node

Part = tuple[Mapping[int, Cut], Cut | None]  # of the arguments and of the result
PIECE_BYTES = 1 << 20  # of the largest value of candidates whose examples run together
LARGE = 8  # times smaller values than the largest are joined for many candidates
DENSE = 0.75  # from this share of changed examples on, all of them are computed


class Gathering:
    """A slice, and how the examples of a tile pass through it.

    Raises:
        Mixed: Examples do not stay apart.
    """

    def __init__(self, walk: Walk, scene: Scene, lifts: Lifts) -> None:
        self.walk, self.scene, self.lifts = walk, scene, lifts
        for node in walk.nodes:
            for index in (*node.inputs, *node.outputs):
                if index in scene.unknown and node.outputs[0] not in scene.closed:
                    raise Mixed(scene.unknown[index])
        self.nodes = [node for node in walk.nodes if not self._is_behind(node)]
        self.after = [node for node in walk.nodes if self._is_behind(node)]
        reached = {index for node in self.nodes for index in node.outputs}
        for node in self.after:
            lost = [i for i in node.inputs if i in reached and i not in scene.closed]
            if lost:
                raise Mixed(f"{node.name} of examples and of what is summed over them")
        needs = self._find_needs()
        self.parts: dict[int, Part] = {
            node.outputs[0]: (self._find_asked(node, needs), self._find_out(node, needs))
            for node in self.nodes
        }
        self.piece = max(1, PIECE_BYTES // walk.largest)
        self.region = self._find_region()
        self.row_parts = self._plan_rows()

    def _find_region(self) -> Region | None:
        known = [self.walk.operators[node.name] for node in self.nodes]
        hard, products = [one.is_hard for one in known], [one.is_product for one in known]
        region = find_region(self.scene, self.walk.sources, self.nodes, hard, products)
        if region is None or any(
            self.parts[node.outputs[0]][1] or self.parts[node.outputs[0]][0]
            for node in self.nodes[: region.end]
        ):
            return None
        return region

    def _plan_rows(self) -> Mapping[int, Part]:
        region = self.region
        if region is None:
            return {}
        return plan_parts(self.scene, self.nodes[region.before : region.end], region.dims)

    def _is_behind(self, node: Node) -> bool:
        """Whether a node comes after examples have been added up."""
        return not self.scene.closed.isdisjoint(node.inputs)

    def _call(self, node: Node) -> Call | None:
        return self.scene.calls.get(node.outputs[0])

    # -- what is needed ------------------------------------------------------------------------

    def _find_needs(self) -> dict[int, Cut | None]:
        """How much of every value is read: a part, or (nothing here) all of it."""
        needs: dict[int, Cut | None] = {}
        for node in reversed(self.nodes):
            asked = self._find_asked(node, needs)
            for index in node.inputs:
                want = asked.get(index)
                needs[index] = want if needs.get(index, want) == want else None
        return needs

    def _find_asked(self, node: Node, needs: Mapping[int, Cut | None]) -> Mapping[int, Cut]:
        """The parts of its arguments that a node reads."""
        call = self._call(node)
        if call is None:
            return {}
        out = self._find_out(node, needs)
        if out is None:
            return call.asks
        assert call.tracks is not None
        return {index: Cut(dim, *out[1:]) for index, dim in call.tracks(out.dim).items()}

    def _find_out(self, node: Node, needs: Mapping[int, Cut | None]) -> Cut | None:
        """The part of a node's results that is computed."""
        call = self._call(node)
        wanted = {needs[index] for index in node.outputs if index in needs}
        if call is None or call.tracks is None or len(wanted) != 1:
            return None
        (cut,) = wanted
        if cut is None:
            return None
        try:
            call.tracks(cut.dim)
        except Mixed:
            return None
        return cut

    # -- a tile --------------------------------------------------------------------------------

    def losses(self, candidates: Candidates, tile: Span) -> Tensor:
        """The losses of a tile."""
        num = tile.end - tile.start
        changes = start_changes(candidates, tile)
        env: dict[int, Change] = {
            self.walk.record.sources[name]: change for name, change in changes.items()
        }
        later = self.walk.carry_columns(env)
        reached = self._find_reached(env, later, num)
        if not bool(reached.any()):
            return self.walk.base(self.walk.record.result).expand(num)
        left = {node.outputs for node in later}
        nodes = [node for node in self.nodes if node.outputs in left]
        used = {index for node in nodes for index in node.inputs}
        env = {index: change for index, change in env.items() if index in used}
        pairs = _find_pairs(reached)
        if pairs is None:
            found = self._run_rows(nodes, env, num)
            if isinstance(found, Tensor):
                return found
            read = found or self._run_in_pieces(nodes, env, num)
        else:
            read = Reader(self.lifts, num, pairs)
            read.env.update(env)
            self._run(read, nodes, set())
        closed = {i: c for i, c in read.env.items() if isinstance(c, Stacked)}
        return self.walk.finish(dict(closed), self.after, None, num)

    def _run_rows(
        self, nodes: list[Node], env: Mapping[int, Change], num: int
    ) -> Reader | Tensor | None:
        """The rows that a hard choice alters, if these are few; losses, if there are none."""
        region = self.region
        if region is None or nodes[-1:] != self.nodes[-1:]:
            return None
        skipped = len(self.nodes) - len(nodes)  # operations that left columns
        before, end = region.before - skipped, region.end - skipped
        if before < 1:
            return None
        found, chosen = [], []
        for part in self._list_pieces(num):
            read = self._begin(env, part)
            self._run(read, nodes[:before], {region.choice})
            values = read.read_whole(region.choice)
            rows = find_rows(values, self.lifts.of(region.choice), region.dims[region.choice])
            if part.start == 0 and float(rows.double().mean()) > FEW:
                return None
            candidate, example, at = rows.nonzero(as_tuple=True)
            found.append((candidate + part.start, example, at))
            dim = region.dims[region.choice]
            chosen.append(values.movedim(2 + dim, 2)[candidate, example, at].unsqueeze(1 + dim))
        candidate, example, at = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not len(at):
            return self.walk.base(self.walk.record.result).expand(num)
        rows = RowReader(self.lifts, num, Pairs(candidate, example), at)
        rows.env[region.choice] = torch.cat(chosen).unsqueeze(0)
        rows.cuts[region.choice] = Cut(region.dims[region.choice], 0, 1)
        self._run(rows, nodes[before:end], region.leaving, self.row_parts)
        pairs, values = put_back(rows, region, self.lifts)
        read = Reader(self.lifts, num, pairs)
        read.env.update({index: value.unsqueeze(0) for index, value in values.items()})
        self._run(read, nodes[end:], set())
        return read

    def _list_pieces(self, num: int) -> list[slice]:
        starts = range(0, num, self.piece)
        return [slice(start, min(start + self.piece, num)) for start in starts]

    def _begin(self, env: Mapping[int, Change], part: slice) -> Reader:
        read = Reader(self.lifts, part.stop - part.start, None)
        read.env.update({index: _take(change, part) for index, change in env.items()})
        return read

    def _run_in_pieces(self, nodes: list[Node], env: Mapping[int, Change], num: int) -> Reader:
        """All examples of a few candidates at a time, as far as values are large."""
        large = [n for n, node in enumerate(nodes) if self._is_large(node)]
        middle = large[-1] + 1 if large else 0
        kept = {index for node in nodes[middle:] for index in node.inputs}
        kept |= {index for node in self.after for index in node.inputs} | {self.walk.record.result}
        parts: list[Reader] = []
        for part in self._list_pieces(num) if middle else ():
            parts.append(self._begin(env, part))
            self._run(parts[-1], nodes[:middle], kept)
        read = _join(parts, self._begin(env, slice(0, num)), kept, env)
        self._run(read, nodes[middle:], set())
        return read

    def _is_large(self, node: Node) -> bool:
        """Whether an operation reads or makes large values of examples."""
        values = [i for i in (*node.inputs, *node.outputs) if self.scene.places.get(i) is not None]
        sizes = [self.walk.base(index).nbytes for index in values]
        return max(sizes, default=0) > self.walk.largest / LARGE

    def _find_reached(self, env: Mapping[int, Change], later: list[Node], num: int) -> Tensor:
        """(candidates, examples) in which anything differs."""
        reached = torch.zeros(num, self.scene.num, dtype=torch.bool)
        for node in later:
            for index in node.inputs:
                change = env.get(index)
                if change is None:
                    continue
                reached = reached | self._reach(node, index, change).to(reached.device)
        return reached

    def _reach(self, node: Node, index: int, change: Change) -> Tensor:
        call = self._call(node)
        if isinstance(change, Column):
            if self.scene.places[index] is not None:
                return differing_examples(self.scene, index, change)
            if call is not None and call.reaches is not None:
                return call.reaches(self.scene, change)
        return torch.ones(1, 1, dtype=torch.bool)

    def _run(
        self,
        read: Reader,
        nodes: list[Node],
        kept: Container[int],
        parts: Mapping[int, Part] | None = None,
    ) -> None:
        """Operations one after the other, on what changes of their arguments."""
        last_use = {i: n for n, node in enumerate(nodes) for i in node.inputs}
        behind = {index for node in self.after for index in node.inputs}
        for number, node in enumerate(nodes):
            self._run_one(read, node, parts or self.parts)
            for index in node.inputs:
                if last_use[index] == number and index not in kept and index not in behind:
                    read.forget(index)

    def _run_one(self, read: Reader, node: Node, parts: Mapping[int, Part]) -> None:
        call = self._call(node)
        if call is None:
            known, env = self.walk.operators[node.name], read.env
            changes = {i: c for i in node.inputs if isinstance(c := env.get(i), Column | Stacked)}
            given = (node, known, changes, self.walk.base, None, read.num)
            env.update(zip(node.outputs, attempt(node, carry_whole, *given), strict=True))
            return
        read.asked, read.out = parts[node.outputs[0]]
        for index, value in zip(node.outputs, call.run(read), strict=True):
            if value is None:
                continue
            read.env[index] = Stacked(value) if call.closes else value
            read.cuts.pop(index, None)
            if read.out is not None:
                read.cuts[index] = read.out


def _take(change: Change, part: slice) -> Change:
    """A change of some of the candidates."""
    if isinstance(change, Column):
        return Column(change.axis, change.unit[part], change.slices[part])
    assert isinstance(change, Stacked)
    return Stacked(change.values[part])


def _join(
    parts: list[Reader], whole: Reader, kept: Iterable[int], env: Mapping[int, Change]
) -> Reader:
    """What pieces computed of the candidates, one behind the other."""
    for part in parts:
        whole.cuts.update(part.cuts)
    for index in kept:
        found = [part.env[index] for part in parts if index in part.env]
        if index in env or not found:
            continue
        if isinstance(found[0], Tensor):
            wide = [v.expand(part.num, *v.shape[1:]) for part, v in zip(parts, found, strict=True)]
            whole.env[index] = torch.cat(wide)
        else:
            whole.env[index] = Stacked(torch.cat([change.values for change in found]))
    return whole


def _find_pairs(reached: Tensor) -> Pairs | None:
    """The pairs to compute; nothing if that is nearly all of them."""
    if float(reached.double().mean()) >= DENSE:
        return None
    return Pairs(*reached.nonzero(as_tuple=True))
