"""What the operations of a slice read and make, before any candidate is evaluated."""

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Protocol

from hardstep.evaluation.gathered.deferred import count_deferred
from hardstep.evaluation.gathered.passes import RowRule
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.rows import Region, find_region, plan_rows
from hardstep.evaluation.gathered.scene import Call, Cut, Part, Scene
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.trace.nodes import Node

SAVES = 2  # times fewer operations than a product, so that it is left undone


class KnowsKinds(Protocol):
    """What has to be known about an operator to see where few tokens change."""

    @property
    def is_hard(self) -> bool:
        """Whether results are often the base's where arguments are not."""

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""

    @property
    def rows(self) -> RowRule | None:
        """See `passes.KnowsRows`."""


Operators = Mapping[str, KnowsKinds]


class Plan:
    """The operations of a slice on examples, and those behind sums over examples.

    Raises:
        Mixed: Examples do not stay apart.
    """

    def __init__(self, walk: Walk, scene: Scene, operators: Operators) -> None:
        self.scene, self.operators = scene, operators
        for node in walk.nodes:
            for index in (*node.inputs, *node.outputs):
                if index in scene.unknown and node.outputs[0] not in scene.closed:
                    raise Mixed(scene.unknown[index])
        self.nodes = [node for node in walk.nodes if not self._is_behind(node)]
        self.after = [node for node in walk.nodes if self._is_behind(node)]
        self._check_after()
        # A hard choice asks for numbers that keep the base's order of operations.
        self.is_soft = not any(operators[node.name].is_hard for node in self.nodes)
        needs = self._find_needs()
        self.parts: Mapping[int, Part] = {
            node.outputs[0]: (self._find_asked(node, needs), self._find_out(node, needs))
            for node in self.nodes
        }
        self.spread = {i for node in self.nodes for i in node.outputs[:1] if self._feeds_product(i)}
        self.deferred = self._find_deferred()
        self.region = self._find_region(walk)
        self.row_parts = plan_rows(scene, self.nodes, self.region) if self.region else {}

    def _is_behind(self, node: Node) -> bool:
        """Whether a node comes after examples have been added up."""
        return not self.scene.closed.isdisjoint(node.inputs)

    def _check_after(self) -> None:
        reached = {index for node in self.nodes for index in node.outputs}
        for node in self.after:
            if any(i in reached and i not in self.scene.closed for i in node.inputs):
                raise Mixed(f"{node.name} of examples and of what is summed over them")

    def call(self, node: Node) -> Call | None:
        """How a node treats examples; nothing if it has none."""
        return self.scene.calls.get(node.outputs[0])

    def is_product(self, node: Node) -> bool:
        """Whether a node is a matrix product."""
        return self.operators[node.name].is_product

    def _feeds_product(self, index: int) -> bool:
        """Whether a value is multiplied by a matrix, perhaps under another shape."""
        for node in self.nodes:
            if index in node.inputs[:-1] and self.is_product(node):
                return True
            call = self.call(node) if index in node.inputs else None
            is_view = call is not None and call.carry is not None and len(node.inputs) == 1
            if is_view and self._feeds_product(node.outputs[0]):
                return True
        return False

    def _find_deferred(self) -> set[int]:
        """Products that are left undone, since little of them is read."""
        if not self.is_soft:
            return set()
        found = set()
        for node in self.nodes:
            out, call = node.outputs[0], self.call(node)
            if call is not None and call.inner and self.parts[out][1] is None:
                whole = prod(self.scene.shape(out)) * call.inner
                if SAVES * self._count_deferred(out, call.inner) <= whole:
                    found.add(out)
        return found

    def _count_deferred(self, index: int, inner: int) -> float:
        """Multiply-adds for everything that reads a product, if it is left undone."""
        total, shape = 0.0, self.scene.shape(index)
        for node in [*self.nodes, *self.after]:
            if index not in node.inputs:
                continue
            call = self.call(node)
            asked = {} if call is None else self.parts[node.outputs[0]][0]
            if call is None or node in self.after:
                return inf
            if index in asked and not call.asks:
                total += prod(_cut(shape, asked[index])) * inner
            elif index in call.meets:
                other = call.meets[index]
                sizes = _cut(self.scene.shape(other), asked.get(other))
                total += count_deferred(shape, inner, sizes)
            elif call.defer is not None and not call.inner:
                total += self._count_deferred(node.outputs[0], inner)
            else:
                return inf
        return total

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
        call = self.call(node)
        if call is None:
            return {}
        out = self._find_out(node, needs)
        if out is None:
            return call.asks
        assert call.tracks is not None
        return {index: Cut(dim, *out[1:]) for index, dim in call.tracks(out.dim).items()}

    def _find_out(self, node: Node, needs: Mapping[int, Cut | None]) -> Cut | None:
        """The part of a node's results that is computed."""
        call = self.call(node)
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

    def _find_region(self, walk: Walk) -> Region | None:
        """Where only rows run on; not among operations of which parts are needed."""
        hard = [self.operators[node.name].is_hard for node in self.nodes]
        products = [self.is_product(node) for node in self.nodes]
        region = find_region(self.scene, walk.sources, self.nodes, hard, products)
        if region is None:
            return None
        parts = [self.parts[node.outputs[0]] for node in self.nodes[: region.end]]
        return None if any(asked or out for asked, out in parts) else region


def _cut(shape: Sequence[int], cut: Cut | None) -> list[int]:
    """The shape of a part."""
    sizes = list(shape)
    if cut is not None:
        sizes[cut.dim] = cut.length
    return sizes
