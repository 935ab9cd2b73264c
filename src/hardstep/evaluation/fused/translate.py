"""From a recorded forward pass to the expressions of a fused kernel.

The record's nodes are walked in order. A value that candidates change is followed as

    a column   one unit of one axis differs: an expression per lane
    by lanes   an expression per lane, or per lane and index of one axis
    a stack    several of these along an axis of their own, such as time

with examples (axis 0) as lanes. What is not covered raises `Unfusable` with a reason, and the
evaluator carries the block through the record operation by operation instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from hardstep.evaluation.fused.expressions import KINDS, Access, Expr, Fn, Kind, Stretch, Unfusable
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.tables import Flat, Matrix, PerExample, Replaced, Table
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.trace.nodes import Node, Ref

Lookup = Callable[[int], Tensor]
# The expression of an element-wise node, from expressions in place of its tensors.
Make = Callable[[Node, Lookup, Graph, Callable[[Ref], Expr]], Expr]
MAX_EXPRESSIONS = 24_000  # beyond that compiling takes longer than it saves


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed value: its expression, and the axis (from the right) its domain or unit is on."""

    expr: Expr
    axis: int | None = None
    column: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """Several values of one shape stacked along an axis; nothing stands for unchanged ones."""

    whole: int  # the recorded value that holds all of them
    axis: int
    parts: tuple[Changed | None, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The same where the axis of the stack and the examples are one, as a product takes them."""

    whole: int
    axis: int
    parts: tuple[Changed | None, ...]


@dataclass(frozen=True, slots=True)
class Closing:
    """A sum over examples: new − old per lane, to be divided by a recorded number."""

    output: int  # the value it replaces
    difference: Expr
    divisor: float | int  # a number, or (for nll) the number of the value that holds it
    by_value: bool = False


@dataclass
class Program:
    """Everything a kernel needs to be generated and bound."""

    num_examples: int
    graph: Graph = field(default_factory=Graph)
    tables: dict[Table, int] = field(default_factory=dict)
    exits: list[Expr] = field(default_factory=list)  # truths: the column differs from its base
    closings: list[Closing] = field(default_factory=list)
    order_by: int | None = None  # a recorded value by which examples are best sorted
    updated: set[int] = field(default_factory=set)  # recorded values to which changes are added

    def table(self, table: Table) -> int:
        """The number of a table; the same one for the same content."""
        return self.tables.setdefault(table, len(self.tables))


class Translator:
    """Walks nodes; `values` holds what is changed so far, by value number.

    Args:
        base: Recorded values by number.
        num_examples: Of the batch.
        weights: Parameter-like values, of which one row or column is changed.
        operators: What is known about operators, by name.
        uses: How many operations read a value.
    """

    def __init__(
        self,
        base: Lookup,
        num_examples: int,
        weights: Mapping[int, Column | None],
        operators: "Mapping[str, KnowsLanes]",
        uses: Mapping[int, int],
    ) -> None:
        self.base, self.weights, self.operators, self.uses = base, weights, operators, uses
        self.program = Program(num_examples)
        self.g = self.program.graph
        self.values: dict[int, Changed | Stack | Merged] = {}
        self.vectors: set[int] = set()  # changed along the last axis, alike for all examples
        self.closed: set[int] = set()

    def follow(self, node: Node) -> None:
        """Follow one operation."""
        if len(self.g) > MAX_EXPRESSIONS:
            raise Unfusable(f"more than {MAX_EXPRESSIONS:,} operations")
        known = self.operators[node.name]
        if any(index in self.weights for index in node.inputs) and not known.enters_lanes:
            raise Unfusable(f"{node.name}: a changed parameter is used in an unusual way")
        found = [self.values[index] for index in node.inputs if index in self.values]
        if not found and self.weights.keys().isdisjoint(node.inputs):
            return  # follows from a part of a stack that does not change
        if not all(isinstance(value, Changed) for value in found):
            if known.stack is None:
                raise Unfusable(f"{node.name} of a stack")
            known.stack(self, node)
        elif known.lanes is not None:
            known.lanes(self, node)
        else:
            raise Unfusable(node.name)
        self._check_examples(node)

    def _check_examples(self, node: Node) -> None:
        """Lanes are examples: whatever is followed by lanes has as many of them, on axis 0."""
        for out in node.outputs:
            if isinstance(self.values.get(out), Changed):
                value = self.base(out)
                if value.dim() == 0 or value.shape[0] != self.program.num_examples:
                    raise Unfusable(f"{node.name}: another number of examples")

    # -- operands -------------------------------------------------------------------------

    def kind(self, index: int) -> Kind:
        """The kind of a recorded value."""
        return find_kind(self.base(index))

    def changed(self, index: int) -> Changed:
        """A changed value that is not a stack."""
        found = self.values[index]
        if not isinstance(found, Changed):
            raise Unfusable("a stack where one value is expected")
        return found

    def matrix(self, index: int, axis: int = -1) -> Expr:
        """A base value (examples, ..., D), read at j."""
        size = self.base(index).shape[axis]
        table = self.program.table(Matrix(index))
        return self.g.read(Access.AXIS_LANE, self.kind(index), table, size)

    def at_unit(self, index: int) -> Expr:
        """A base value (examples, ..., D), read at the candidate's unit."""
        table = self.program.table(Matrix(index))
        return self.g.read(Access.UNIT_LANE, self.kind(index), table)

    def read_shared(self, index: int, ndim: int, axis: int | None, column: bool) -> Expr:
        """An unchanged operand, read where it varies: along lanes, along the axis, or nowhere."""
        value, kind = self.base(index), self.kind(index)
        axes = {d - value.dim() for d, size in enumerate(value.shape) if size > 1}
        lanes = value.dim() == ndim and value.shape[0] == self.program.num_examples and ndim > 0
        axes.discard(-ndim) if lanes else None
        along = axis is not None and axis in axes
        if axes - ({axis} if along else set()):
            raise Unfusable("an operand varies along an axis that is not followed")
        lanes = lanes and value.shape[0] > 1
        if not lanes and not along:
            return self.g.read(Access.FIRST, kind, self.program.table(Flat(index)))
        if not along:
            return self.g.read(Access.LANE, kind, self.program.table(PerExample(index)))
        assert axis is not None
        if lanes:
            return self.at_unit(index) if column else self.matrix(index, axis)
        table = self.program.table(Flat(index))
        if column:
            return self.g.read(Access.UNIT, kind, table)
        return self.g.read(Access.AXIS, kind, table, value.shape[axis])

    def dense(self, index: int) -> Changed:
        """A changed value as an expression along its axis, columns put into their place."""
        found = self.changed(index)
        if not found.column:
            return found
        assert found.axis is not None
        return self.put_back(found, self.at_unit(index), self.matrix(index, found.axis))

    def put_back(self, column: Changed, at_unit: Expr, old: Expr) -> Changed:
        """A column put into its place among old values; examples in which it differs continue."""
        self.leave_axis(column.expr, at_unit)
        assert old.domain is not None
        here = self.g.is_unit(Stretch(0, old.domain))
        return Changed(self.g.select(here, column.expr, old), column.axis)

    def only_unit(self, index: int) -> Changed:
        """A changed value along an axis of size 1, as a value per lane."""
        found = self.dense(index)
        if self.changed(index).column or found.expr.domain is None:
            return Changed(self.changed(index).expr)
        return Changed(self.g.pick(found.expr, self.g.constant(0, Kind.I64)))

    def leave_axis(self, column: Expr, old: Expr) -> None:
        """A column leaves its axis: examples in which it differs continue."""
        differs = self.g.apply(Fn.NE, column, old)
        if differs not in self.program.exits:
            self.program.exits.append(differs)

    def add_vector(self, index: int) -> None:
        """A parameter vector that candidates replace as a whole."""
        table, size = self.program.table(Replaced(index)), self.base(index).shape[0]
        read = self.g.read(Access.CANDIDATE_AXIS, self.kind(index), table, size)
        self.values[index] = Changed(read, -1)
        self.vectors.add(index)

    # -- element-wise ---------------------------------------------------------------------

    def apply_elementwise(self, node: Node, make: Make) -> Changed:
        """An element-wise operation on values that are not stacks."""
        output = self.base(node.outputs[0])
        if output.dim() == 0 or output.shape[0] != self.program.num_examples:
            raise Unfusable(f"{node.name}: the result has no examples")
        if output.dim() == 1 and self.vectors.intersection(node.inputs):
            raise Unfusable(f"{node.name} of changed vectors")
        found = {i: self._fit(i, output) for i in dict.fromkeys(node.inputs) if i in self.values}
        column = all(value.column for value in found.values())
        axes = {value.axis for value in found.values()} - {None}
        if len(axes) > 1 or any(
            self.base(i).dim() != output.dim()
            for i in node.inputs
            if i in self.values and i not in self.vectors
        ):
            raise Unfusable(f"{node.name}: changed operands vary along different axes")
        axis = next(iter(axes), None) if axes else self._find_free_axis(node)

        def operand(ref: Ref) -> Expr:
            if ref.index not in self.values:
                return self.read_shared(ref.index, output.dim(), axis, column)
            value = found[ref.index]
            return value.expr if column or not value.column else self.dense(ref.index).expr

        expr = make(node, self.base, self.g, operand)
        return Changed(expr, axis if column or expr.domain is not None else None, column)

    def _fit(self, index: int, output: Tensor) -> Changed:
        """A changed operand; where its only unit meets several others, a value per lane."""
        found = self.changed(index)
        if found.axis is None or self.base(index).shape[found.axis] == output.shape[found.axis]:
            return found
        return self.only_unit(index)

    def _find_free_axis(self, node: Node) -> int | None:
        """The axis along which unchanged operands spread values that vary by lane only."""
        shape = self.base(node.outputs[0]).shape
        wide = [d - len(shape) for d in range(1, len(shape)) if shape[d] > 1]
        return wide[0] if len(wide) == 1 else None


def find_kind(value: Tensor) -> Kind:
    """The kind of a recorded value."""
    kind = KINDS.get(value.dtype)
    if kind is None:
        raise Unfusable(f"numbers of type {value.dtype}")
    return kind


def find_argument(node: Node, place: int, name: str, default: Any) -> Any:
    """An argument of a node, by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


Lowering = Callable[[Translator, Node], None]


class KnowsLanes(Protocol):
    """What has to be known about an operator to follow it by lanes."""

    @property
    def lanes(self) -> Lowering | None:
        """Follows a node of which an operand changes."""

    @property
    def stack(self) -> Lowering | None:
        """Follows a node of which an operand is a stack."""

    @property
    def enters_lanes(self) -> bool:
        """Whether `lanes` reads changed parameters."""
