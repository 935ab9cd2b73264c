"""The examples that candidates change, of many candidates in one batch, on their way to the loss.

While a change is one column it is carried as such. From where it is not, the examples that differ
run through the rest of the slice together: products are shared, since all of them meet the base's
weights. Of a value of which the loss sees a few tokens, only these are computed.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.reader import Lifts, Pairs, Reader, differing_examples
from hardstep.evaluation.gathered.scene import Call, Cut, Scene
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.incremental.walk import Walk, attempt, carry_whole, start_changes
from hardstep.evaluation.trace.record import Node

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
        self.needs = self._find_needs()

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
        read = Reader(self.lifts, num, _find_pairs(reached))
        read.env.update(env)
        first = {node.outputs for node in later}
        closed: dict[int, Change] = {}
        nodes = [node for node in self.nodes if node.outputs in first]
        last_use = {i: n for n, node in enumerate(nodes) for i in node.inputs}
        for number, node in enumerate(nodes):
            self._run(read, node, closed, num)
            for index in node.inputs:
                if last_use[index] == number:
                    read.forget(index)
        return self.walk.finish(closed, self.after, None, num)

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

    def _run(self, read: Reader, node: Node, closed: dict[int, Change], num: int) -> None:
        """One operation, on what changes of its arguments."""
        call = self._call(node)
        if call is None:
            known = self.walk.operators[node.name]
            changes = {i: c for i in node.inputs if isinstance(c := read.env.get(i), Column | Stacked)}
            results = attempt(node, carry_whole, node, known, changes, self.walk.base, None, num)
            read.env.update(zip(node.outputs, results, strict=True))
            return
        read.asked, read.out = self._find_asked(node, self.needs), self._find_out(node, self.needs)
        found = call.run(read)
        for index, value in zip(node.outputs, found, strict=True):
            if value is None:
                continue
            if call.closes:
                closed[index] = Stacked(value)
                continue
            read.env[index] = value
            read.cuts.pop(index, None)
            if read.out is not None:
                read.cuts[index] = read.out


def _find_pairs(reached: Tensor) -> Pairs | None:
    """The pairs to compute; nothing if that is nearly all of them."""
    if float(reached.double().mean()) >= DENSE:
        return None
    return Pairs(*reached.nonzero(as_tuple=True))
