"""Deciding whether a block can be fused, and how its candidates enter the kernel.

Row-wise and full-space candidates change one unit of a layer; dense directions change a whole
layer; vectors (biases, gains) are replaced as a whole. Whatever happens to parameters before
they meet an example (quantizers, transposes) stays with torch.
"""

from collections import Counter
from itertools import product
from typing import NamedTuple

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.fused.compile import compile_kernel
from hardstep.evaluation.fused.expressions import Access, Expr, Move, Product, Unfusable
from hardstep.evaluation.fused.kernel_plan import (
    ColumnEntry,
    Factors,
    KernelPlan,
    LayerEntry,
    LinearEntry,
    Operators,
    Rows,
)
from hardstep.evaluation.fused.pack import choose_writer
from hardstep.evaluation.fused.states import State, enter_rows, find_state
from hardstep.evaluation.fused.tables import Entering, Matrix, Part, Slab, Table, Units
from hardstep.evaluation.fused.translate import Changed, Lookup, Merged, Translator
from hardstep.evaluation.incremental.columns import Column, carry_parameters
from hardstep.evaluation.trace.nodes import Node, Record

MAX_LANES = 6_000  # expressions outside loops, each compiled where it stands
CACHE_BYTES = 6 << 20  # of weights that are read again at every time step


class Axes(NamedTuple):
    """Two axes that a product takes as one."""

    examples: int  # how many there are
    other: int  # which of the two is not the examples', such as time


def plan_kernel(
    candidates: Candidates,
    written: Record,
    nodes: list[Node],
    span: Span,
    operators: Operators,
) -> KernelPlan:
    """The plan of a block.

    Raises:
        Unfusable: Some operation is not covered; the message says which.
    """
    if not nodes:
        raise Unfusable("the loss does not depend on it")
    if any(value.device.type != "cpu" for value in written.values):
        raise Unfusable("values that are not in the processor's memory")
    refusal: Unfusable | None = None
    for axes in (None, *find_axes(nodes, written.values.__getitem__)):
        builder = _Builder(candidates, written, nodes, span, operators, axes)
        try:
            for node in nodes:
                builder.add(node)
            return builder.finish()
        except Unfusable as reason:
            refusal = refusal or reason
    assert refusal is not None
    raise refusal


def find_axes(nodes: list[Node], base: Lookup) -> list[Axes]:
    """Axes that are one axis of some product, and two axes of what is made of it."""
    found: dict[Axes, None] = {}
    for node in nodes:
        for value, other in product(node.inputs, node.outputs):
            shapes = sorted((base(value).shape, base(other).shape), key=len)
            if list(map(len, shapes)) == [2, 3] and shapes[0] == (
                shapes[1][0] * shapes[1][1],
                shapes[1][2],
            ):
                found |= {Axes(shapes[1][0], 1): None, Axes(shapes[1][1], 0): None}
    return list(found)


def _check_lanes(needed: list[Expr]) -> None:
    """Refuse what would take longer to compile than it saves."""
    if sum(expr.domain is None for expr in needed) > MAX_LANES:
        raise Unfusable(f"more than {MAX_LANES:,} operations on single numbers")


def _check_cache(needed: list[Expr]) -> None:
    """Refuse weights of a loop over time that would come from memory for every few examples."""
    products = [expr for expr in needed if isinstance(expr, Product)]
    times = Counter(expr.weight for expr in products)
    again = {
        expr.weight: (expr.args[0].domain or 1) * (expr.domain or 1) * expr.kind.num_bytes
        for expr in products
        if times[expr.weight] > 1
    }
    size = sum(again.values())
    if size > CACHE_BYTES:
        raise Unfusable(f"the weights of a loop over time, {size / 1e6:,.0f} MB, exceed the cache")


class _Builder:
    def __init__(
        self,
        candidates: Candidates,
        written: Record,
        nodes: list[Node],
        span: Span,
        operators: Operators,
        axes: Axes | None,
    ) -> None:
        self.operators, self.axes = operators, axes
        self.uses = Counter(index for node in nodes for index in node.inputs)
        self.base: Lookup = written.values.__getitem__
        self.subspace, self.dim = candidates.subspace, candidates.offsets.shape[-1]
        self.block = span.block
        self.names = candidates.subspace.blocks[span.block].names
        self.sources = {written.sources[name] for name in self.names}
        first = Span(span.block, span.start, span.start + 1)
        self.index, self.offsets = candidates.coordinates(first)
        self.local = candidates.local(first)
        self.bare = set(self.sources)  # parameters as they are, or transposed
        self.written = written
        # Parameters and what becomes of them without examples; nothing for a whole layer.
        self.weights: dict[int, Column | None] = {}
        self.vector: int | None = None
        self._find_weights()
        self.done: set[int] = set()  # values after a sum over examples
        self.before: list[Node] = []
        self.t: Translator | None = None
        self.plan: KernelPlan | None = None

    def _find_weights(self) -> None:
        if self.local is not None:
            self.weights = {
                self.written.sources[name]: Column(0, unit, weights)
                for name, (unit, weights) in self.local.items()
            }
            return
        if len(self.names) != 1:
            raise Unfusable("candidates change several tensors at once")
        (source,) = self.sources
        if self.base(source).dim() == 1:
            self.vector = source
        elif self.subspace.directions(self.block, self.index[0]) is None:
            raise Unfusable("candidates change a whole tensor in a way that is not linear")
        else:
            self.weights = {source: None}

    def _start(self, node: Node, axis: int = 0) -> Translator:
        """Made at the first value that has examples: (examples, units), or a stack of these."""
        if self.t is None:
            shape = self.base(node.outputs[0]).shape
            if len(shape) != 2 + axis:
                raise Unfusable(f"{node.name}: the first changed value is not (examples, units)")
            num = int(shape[axis]) if self.axes is None else self.axes.examples
            self.t = Translator(self.base, num, self.weights, self.operators, self.uses)
            self.plan = KernelPlan(self.t.program, self.operators, self.before)
            if self.local is not None:
                self.t.program.table(Units())
            if self.vector is not None:
                self.t.add_vector(self.vector)
        return self.t

    # -- nodes ------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Sort a node: parameters alone, an entry, examples, or sums over examples."""
        changed = set(node.inputs)
        examples = self.t.values.keys() if self.t else set()
        if self.t and changed & (self.t.closed | self.done):
            if changed & (examples | self.weights.keys()):
                raise Unfusable(f"{node.name} mixes examples with sums over them")
            assert self.plan is not None
            self.plan.after.append(node)
            self.done.update(node.outputs)
        elif (state := self._find_state(node)) is not None:
            t = self._start(node, axis=self.base(node.outputs[0]).dim() - 2)
            enter_rows(t, node, state, self.local is not None)
        elif changed & self.weights.keys() and not changed & examples:
            self._follow_parameters(node)
        else:
            self._start(node).follow(node)

    def _follow_parameters(self, node: Node) -> None:
        known = self.operators[node.name]
        factors = known.factors(node) if known.factors else None
        if factors is not None and factors.right in self.weights:
            self._enter(node, factors)
        elif known.enters_lanes and factors is None:
            self._start(node).follow(node)
        elif self.local is None:
            if not set(node.inputs) <= self.sources or not self._is_transpose(node):
                raise Unfusable(f"{node.name} of a parameter with dense directions")
            self.weights[node.outputs[0]] = None
            self.bare.update(node.outputs)
        else:
            changes = carry_parameters(node, self.weights, self.base, self.operators)
            if changes is None:
                raise Unfusable(f"{node.name} of a parameter")
            self.weights.update(zip(node.outputs, changes, strict=True))
            self.before.append(node)
            if known.order is not None and set(node.inputs) <= self.bare:
                self.bare.update(node.outputs)

    def _find_state(self, node: Node) -> State | None:
        """How a node gives all examples a changed row, if it does."""
        if self.axes is not None:
            return None
        state = find_state(node, self.operators, self.base, self.weights, self.vector)
        num = self.base(node.outputs[0]).shape[-2] if state is not None else 0
        return state if self.t is None or num == self.t.program.num_examples else None

    def _is_transpose(self, node: Node) -> bool:
        """Whether it is the transpose of a matrix."""
        order = self.operators[node.name].order
        matrix = self.base(node.inputs[0]).dim() == 2
        return order is not None and matrix and order(node, 2) == [1, 0]

    # -- entries ----------------------------------------------------------------------------

    def _enter(self, node: Node, factors: Factors) -> None:
        left, right, bias = factors
        out = node.outputs[0]
        t = self._start(node)
        if left in self.weights or self.base(out).dim() != 2:
            raise Unfusable(f"{node.name}: both factors change")
        if any(scale != 1 for scale in node.kwargs.values()):
            raise Unfusable(f"{node.name} with a scale")
        if bias is not None and self.base(bias).dim() != 1:
            raise Unfusable("addmm with a matrix added")
        enter = self._enter_layer if self.local is None else self._enter_column
        rows, num = self.base(out).shape[0], t.program.num_examples
        if rows == num:
            t.values[out] = enter(t, Matrix(left), Matrix(out), factors, out)
            return
        if self.axes is None or rows % num:
            raise Unfusable(f"{node.name}: another number of examples")
        parts = []
        for number in range(rows // num):
            examples, old = (Slab(i, self.axes.other, number, num) for i in (left, out))
            parts.append(enter(t, examples, old, factors, out))
        t.values[out] = Merged(out, self.axes.other, tuple(parts))

    def _enter_column(
        self, t: Translator, examples: Rows, old: Rows, factors: Factors, out: int
    ) -> Changed:
        assert self.plan is not None
        _, right, bias = factors
        weight = self.weights[right]
        if weight is None or weight.axis != 1:
            raise Unfusable("the changed row of a parameter is not a unit of its product")
        kind, number, table = t.kind(out), len(self.plan.entries), t.program.table
        # A move along directions takes the bias with it, so it must be added right here.
        plain = right in self.bare and (len(self.names) == 1 or bias in self.bare)
        move = self.subspace.linear(self.block, self.index, self.offsets) if plain else None
        if move is None:
            column = table(Entering(Part.COLUMN, number))
            source = t.g.read(Access.CANDIDATE_LANE, kind, column)
            self.plan.entries.append(ColumnEntry(out, examples, old, right, bias, column))
        else:
            shift = table(Entering(Part.SHIFT, number))
            along_inputs = move.directions is None
            read: Table = examples if along_inputs else Entering(Part.RESPONSES, number)
            responses = table(read)
            places, lengths = (
                table(Entering(part, number)) for part in (Part.PLACES, Part.LENGTHS)
            )
            tables = Move(table(old), responses, lengths, self.dim)
            source = t.g.linear(kind, tables, shift, places)
            own = None if along_inputs else responses
            entry = LinearEntry(out, examples, old, right, bias, shift, own, places, lengths)
            self.plan.entries.append(entry)
        return Changed(source, -1, column=True)

    def _enter_layer(
        self, t: Translator, examples: Rows, old: Rows, factors: Factors, out: int
    ) -> Changed:
        assert self.plan is not None
        _, right, bias = factors
        number, size = len(self.plan.entries), self.base(out).shape[1]
        if right in self.sources or bias in self.weights:
            raise Unfusable("a product with a parameter that is not transposed")
        responses, particles, lengths = (
            t.program.table(Entering(part, number))
            for part in (Part.RESPONSES, Part.PARTICLES, Part.LENGTHS)
        )
        move = Move(t.program.table(old), responses, lengths, self.dim)
        entry = LayerEntry(out, examples, old, right, bias, responses, particles, lengths)
        self.plan.entries.append(entry)
        return Changed(t.g.spread(t.kind(out), move, particles, size), -1)

    def finish(self) -> KernelPlan:
        """Write and compile the kernel."""
        if self.plan is None or self.t is None or not self.t.program.closings:
            raise Unfusable("the loss is not a sum over examples")
        writer = choose_writer(self.t.program)
        _check_lanes(writer.schedule.needed)
        _check_cache(writer.schedule.needed)
        self.plan.text = writer.write()
        compile_kernel(self.plan.text)  # now, while there is another way
        self.plan.lanes, self.plan.scratch = writer.lanes, writer.schedule.scratch
        return self.plan
