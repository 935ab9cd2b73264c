"""Parts of the axis that a value is followed along: one unit, some of them, or all one by one.

A part of an expression is the same expression of parts: of the tables it reads, of the weights of a
product. So nothing that a part leaves out is computed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hardstep.evaluation.fused.expressions import Expr, Unfusable
from hardstep.evaluation.fused.schedule import reachable
from hardstep.evaluation.fused.translate import Changed, Lowering, Translator, find_argument
from hardstep.evaluation.trace.record import Node

_PER_UNIT = ("matrix", "entry", "weight")  # leaves that read a table unit by unit


@dataclass(frozen=True, slots=True)
class Part:
    """Every `step`-th unit from `start` on."""

    start: int
    size: int
    step: int = 1

    def of_table(self, t: Translator, slot: int) -> int:
        """The table that holds these units of another."""
        layout, what = list(t.program.tables)[slot]
        return t.program.table("part", (layout, what, self.start, self.size, self.step))


def take_part(t: Translator, whole: Expr, part: Part) -> Expr:
    """An expression along an axis, as one along a part of it."""
    made: dict[int, Expr] = {}
    for expr in reachable([whole]):
        made[id(expr)] = _take(t, expr, part, lambda arg: made[id(arg)])
    return made[id(whole)]


def _take(t: Translator, expr: Expr, part: Part, taken: Callable[[Expr], Expr]) -> Expr:
    g = t.g
    if expr.domain is None:
        return expr
    if expr.op in _PER_UNIT:
        return g.leaf(expr.op, expr.kind, part.of_table(t, expr.data), domain=part.size)
    if expr.op == "is_unit":
        key = (part.start, part.size, part.step)
        units = g.leaf("entry", "i64", t.program.table("units_of_part", key), domain=part.size)
        return g.apply("eq", units, g.leaf("unit", "i64"), kind="i1")
    if expr.op == "product":
        weight, base = (part.of_table(t, slot) for slot in expr.data)
        return g.product(expr.args[0], part.size, weight, base)
    if expr.op == "lookup":
        return g.lookup(expr.args[0], expr.kind, part.size, part.of_table(t, expr.data))
    if expr.op == "spread":
        *tables, (size, first, step), dim = expr.data
        chosen = (size, first + step * part.start, step * part.step)
        return g.leaf("spread", expr.kind, (*tables, chosen, dim), domain=part.size)
    if expr.is_leaf:
        raise Unfusable("a part of what candidates replace as a whole")
    return g.apply(expr.op, *map(taken, expr.args), kind=expr.kind, data=expr.data)


def take_unit(t: Translator, value: Changed, old: Expr, number: int) -> Changed:
    """One unit of a changed value, whose base is `old` along the axis, as a value per lane."""
    one = Part(number, 1)
    if not value.column:
        taken = take_part(t, value.expr, one)
        return Changed(taken if taken.domain is None else t.g.pick(taken, t.g.constant(0, "i64")))
    before = t.g.leaf("lane", old.kind, one.of_table(t, old.data))
    here = t.g.apply("eq", t.g.leaf("unit", "i64"), t.g.constant(number, "i64"), kind="i1")
    now = t.g.apply("select", here, value.expr, before, kind=old.kind)
    t.leave_axis(now, before)
    return Changed(now)


def take_units(t: Translator, value: Expr, part: Part) -> Changed:
    """Some units of a changed value."""
    taken = take_part(t, value, part)
    return Changed(taken, None if taken.domain is None else -1)


# Where an operation has its dimension: its place, its name, and what it is unless it is given.
_DIMS = {
    "select": (1, "dim", 0),
    "unbind": (1, "dim", 0),
    "slice": (1, "dim", 0),
    "split": (2, "dim", 0),
    "split_with_sizes": (2, "dim", 0),
}
DROPS = ("select", "unbind")  # the dimension is then gone


def find_dim(t: Translator, node: Node) -> int:
    """The dimension that an operation takes apart, counted from the front."""
    return int(find_argument(node, *_DIMS[node.name])) % t.base(node.inputs[0]).dim()


def list_parts(t: Translator, node: Node) -> Iterator[tuple[int, Part]]:
    """The outputs of an operation that takes an axis apart, each with its part."""
    dim = find_dim(t, node)
    num, start = t.base(node.inputs[0]).shape[dim], 0
    if node.name == "slice":
        start, end, step = slice(*[*node.args[2:5], None, None, None][:3]).indices(num)
        yield node.outputs[0], Part(start, len(range(start, end, step)), step)
        return
    if node.name == "select":
        start = node.args[2] % num
    for out in node.outputs:
        size = 1 if node.name in DROPS else t.base(out).shape[dim]
        yield out, Part(start, size)
        start += size


def _lower_part(t: Translator, node: Node) -> None:
    """Parts of the followed axis; along another one every part is the same."""
    (index,) = node.inputs
    value, found, dim = t.base(index), t.changed(index), find_dim(t, node)
    if dim == 0:
        raise Unfusable(f"{node.name} takes examples apart")
    behind = dim - value.dim()
    if behind != found.axis:
        axis = found.axis
        if axis is not None and node.name in DROPS and behind > axis:
            axis += 1
        t.values.update(dict.fromkeys(node.outputs, Changed(found.expr, axis, found.column)))
        return
    if value.dim() != 2:
        raise Unfusable(f"{node.name} of a value with more axes than examples and units")
    for out, part in list_parts(t, node):
        if part.size == value.shape[1] and node.name not in DROPS:
            t.values[out] = found
        elif node.name in DROPS:
            t.values[out] = take_unit(t, found, t.matrix(index), part.start)
        else:
            t.values[out] = take_units(t, t.dense(index).expr, part)


ON_PARTS: dict[str, Lowering] = dict.fromkeys(_DIMS, _lower_part)
