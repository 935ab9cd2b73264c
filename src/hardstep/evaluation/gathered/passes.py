"""Operations between products as one compiled pass over rows, instead of one after the other.

What stands between two products reads and writes large values and computes little. A pass takes a
row (the last dimension of a value) through all of it while the row is in registers: shortcuts,
activations, norms, softmax, the best place, a mean over rows. Outer products are put together
there, and never written.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Size, Tensor

from hardstep.evaluation.fused.expressions import KINDS, Access, Expr, Fn, Kind, Read, Unfusable
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.schedule import reachable
from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.row_code import Output, write_pass
from hardstep.evaluation.gathered.scene import Call, Cut, Part
from hardstep.evaluation.incremental.along import find_dims
from hardstep.evaluation.trace.nodes import Node

LEAST_NUMBERS = 2  # of a row
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}


class KnowsRows(Protocol):
    """What has to be known about an operator to take part in a pass."""

    @property
    def rows(self) -> "RowRule | None":
        """The expressions of its results along rows; may raise `Unfusable`."""


Operators = Mapping[str, KnowsRows]
RowRule = Callable[["Builder", Node], Sequence[Expr]]


@dataclass(frozen=True)
class Table:
    """What a pass reads: the argument of one of its nodes, or a part of how it changes."""

    node: int  # the number of the node in the pass
    index: int
    like: int  # the value with which it is broadcast
    part: str = ""  # all of it, if left out


@dataclass(frozen=True)
class Written:
    """A result that is read behind a pass."""

    node: int
    index: int
    kind: Kind
    summed: bool


@dataclass(frozen=True)
class Pass:
    """The code of a pass, and what it is given."""

    text: str
    tables: Sequence[Table]
    written: Sequence[Written]
    num: int  # of nodes
    rows: int  # of an example
    operations: int  # of an example


@dataclass
class Passes:
    """The passes of a block, by where they begin and what is changed there, and what they took."""

    known: dict[object, Pass | None] = field(default_factory=dict)
    candidates: int = 0
    operations: float = 0.0
    nbytes: float = 0.0

    def count(self, made: Pass, examples: int, nbytes: int) -> None:
        """A pass over examples has run."""
        self.operations += made.operations * examples
        self.nbytes += nbytes


class Builder:
    """The expressions of consecutive nodes, as rules of the registry make them.

    Args:
        read: Values on which the pass will run.
        parts: What is needed of them.
    """

    def __init__(self, read: Reader, parts: Mapping[int, Part]) -> None:
        self.read, self.parts, self.graph = read, parts, Graph()
        self.values: dict[int, Expr] = {}  # that the pass changes
        self.tables: list[Table] = []
        self.kinds: list[Kind] = []
        self.size = self.rows = 0  # numbers of a row, rows of an example
        self.number = 0  # of the node
        self.computing = 0  # nodes that are more than a view
        self.summed = False  # whether the last node added rows up
        self._known: dict[Table, Expr] = {}
        self._cuts: dict[int, Cut | None] = {}

    # -- for rules -----------------------------------------------------------------------------

    def base(self, index: int) -> Tensor:
        """A recorded base value."""
        return self.read.scene.base(index)

    def last_dim(self, index: int) -> int:
        """The dimension of one example along which its rows run."""
        return len(self.read.scene.shape(index)) - 1

    def find_own_dims(self, node: Node, index: int) -> list[int]:
        """The dimensions of one example along which a node works."""
        dims, place = find_dims(node, self.base), self.read.scene.places[index]
        if not dims or place is None:
            raise Unfusable(f"{node.name} of everything")
        return sorted(place.check_dim(dim, node.name) for dim in dims)

    def check_along(self, node: Node, index: int) -> None:
        """Raise `Unfusable` if a node does not work along rows."""
        if self.find_own_dims(node, index) != [self.last_dim(index)]:
            raise Unfusable(f"{node.name} along other dimensions than rows")

    def operand(self, index: int, like: int) -> Expr:
        """An argument, broadcast with another value of the node."""
        if index in self.values:
            return self.values[index]
        outer, column = self.read.outer(index), self.read.column(index)
        if outer is not None:
            return self._combine({name: self._read(index, like, name) for name in outer.parts})
        if column is not None and self.read.is_unit(index, column):
            here, new, old = (self._read(index, like, part) for part in ("here", "new", "old"))
            return self.graph.select(here, new, old)
        return self._read(index, like, "")

    def _combine(self, parts: Mapping[str, Expr]) -> Expr:
        """The numbers of an outer product."""
        total, g = parts["base"], self.graph
        for name, delta in parts.items():
            if name.startswith("delta"):
                factor = parts[name.replace("delta", "factor")]
                total = g.apply(Fn.ADD, total, g.apply(Fn.MUL, delta, factor))
        if "scale" in parts:
            total = g.apply(Fn.MUL, total, parts["scale"])
        return g.apply(Fn.ADD, total, parts["shift"]) if "shift" in parts else total

    def check_rows(self, index: int, cut: Cut | None) -> None:
        """Raise `Unfusable` if a value has other rows; the first one says which they are."""
        shape = [1, *self.read.scene.shape(index)]
        if cut is not None:
            shape[1 + cut.dim] = cut.length
        found = shape[-1], Size(shape[:-1]).numel()
        if self.size == 0:
            self.size, self.rows = found
        if self.size < LEAST_NUMBERS or (self.size, self.rows) != found:
            raise Unfusable("a value with other rows")

    def check_source(self, index: int) -> None:
        """The same of an argument."""
        self.check_rows(index, self.read.asked.get(index))

    def check_result(self, index: int) -> None:
        """The same of a result."""
        self.check_rows(index, self.read.out)

    # -- tables --------------------------------------------------------------------------------

    def _read(self, index: int, like: int, part: str) -> Expr:
        table = Table(self.number, index, like, part)
        if table in self._known:
            return self._known[table]
        value = load(self.read, table)
        kind, last = KINDS.get(value.dtype), value.shape[-1] if value.dim() else 1
        if kind is None or last not in (1, self.size):
            raise Unfusable("a value of other numbers or rows")
        along = self.size if last == self.size else None
        self._known[table] = self.graph.read(Access.LANE, kind, len(self.tables), along)
        self.tables.append(table)
        self.kinds.append(kind)
        return self._known[table]

    # -- nodes ---------------------------------------------------------------------------------

    def is_kept(self, node: Node, call: Call) -> bool:
        """Whether a node may leave factors as they are, which a pass would multiply."""
        if call.carry is None or any(i in self.values for i in node.inputs):
            return False
        return any(isinstance(self.read.env.get(i), Outer | Deferred) for i in node.inputs)

    def add(self, node: Node, rule: RowRule) -> bool:
        """Whether a node became a part of the pass."""
        changed = any(i in self.values or self.read.is_changed(i) for i in node.inputs)
        if changed and not self._add_changed(node, rule):
            return False
        self.number += 1
        return True

    def _add_changed(self, node: Node, rule: RowRule) -> bool:
        asked, out = self.read.asked, self.read.out = self.parts[node.outputs[0]]
        if any(i in self.values and asked.get(i) != self._cuts[i] for i in node.inputs):
            return False
        kept = len(self.tables), self.size, self.rows
        try:
            exprs = rule(self, node)
        except (Unfusable, Mixed):
            del self.tables[kept[0] :], self.kinds[kept[0] :]
            self._known = {t: e for t, e in self._known.items() if t in self.tables}
            _, self.size, self.rows = kept
            return False
        self.values.update(zip(node.outputs, exprs, strict=False))
        self._cuts.update(dict.fromkeys(node.outputs, out))
        self.computing += any(not expr.is_leaf for expr in exprs)
        return True

    def finish(self, nodes: Sequence[Node], needed: Container[int]) -> Pass | None:
        """The pass, if it saves anything."""
        written, outputs = [], []
        for number, node in enumerate(nodes[: self.number]):
            summed = self.summed and number == self.number - 1
            for index in node.outputs:
                if index in self.values and index in needed:
                    expr = self.values[index]
                    written.append(Written(number, index, expr.kind, summed))
                    outputs.append(Output(expr, summed))
        changed = any(table.part for table in self.tables)
        reduced = self.summed or any(one.expr.stage > 0 for one in outputs)
        if not outputs or not (self.computing > 1 or reduced or changed):
            return None
        if any(isinstance(one.expr, Read) for one in outputs):
            return None  # a view costs nothing where it is one
        try:
            text = write_pass(self.size, self.kinds, outputs)
        except Unfusable:
            return None
        computed = reachable([one.expr for one in outputs])
        operations = self.rows * sum(x.domain or 1 for x in computed if not x.is_leaf)
        given = tuple(self.tables), tuple(written), self.number, self.rows
        return Pass(text, *given, operations)


def build_pass(
    read: Reader,
    nodes: Sequence[Node],
    operators: Operators,
    parts: Mapping[int, Part],
    kept: Container[int],
) -> Pass | None:
    """As many of the first nodes as one pass can take, if that saves anything.

    Args:
        read: Values as they are when the first node runs.
        nodes: Up to the last that may be among them.
        operators: What is known about operators.
        parts: What is needed of values.
        kept: Results that are read behind the nodes.
    """
    builder = Builder(read, parts)
    for node in nodes:
        rule, call = operators[node.name].rows, read.scene.calls.get(node.outputs[0])
        if rule is None or call is None or call.closes or builder.summed:
            break
        if builder.number and builder.is_kept(node, call):
            break
        if not builder.add(node, rule):
            break
    behind = {i for node in nodes[builder.number :] for i in node.inputs}
    made = {i for node in nodes[: builder.number] for i in node.outputs}
    return builder.finish(nodes, {i for i in made if i in behind or i in kept})


def load(read: Reader, table: Table) -> Tensor:
    """What a table holds, with the two leading axes or to be broadcast with them."""
    column, outer = read.column(table.index), read.outer(table.index)
    if table.part and outer is not None:
        return outer.parts[table.part]
    if table.part == "old":
        return read.base(table.index)
    if table.part == "here":
        return read.mark(table.index) != 0
    if table.part:
        assert column is not None
        return read.pick(read.lift_column(table.index, column)).unsqueeze(-1)
    place = read.scene.places[table.like]
    assert place is not None
    return read.align(table.index, read.scene.base(table.like).dim(), place)
