"""Parts of the axis that a value is followed along: one unit, or some of them.

A part of an expression is the same expression of parts: of the tables it reads, of the weights of a
product. So nothing that a part leaves out is computed.
"""

from collections.abc import Callable

from hardstep.evaluation.fused.expressions import (
    Access,
    Apply,
    Cast,
    Concat,
    Elementwise,
    Expr,
    Fn,
    IsUnit,
    Kind,
    Lookup,
    Product,
    Read,
    Select,
    Spread,
    Stretch,
    Unfusable,
)
from hardstep.evaluation.fused.schedule import reachable
from hardstep.evaluation.fused.tables import (
    Displaced,
    Entering,
    PartOf,
    Replaced,
    Units,
)
from hardstep.evaluation.fused.translate import Changed, Translator


def take_part(t: Translator, whole: Expr, units: Stretch) -> Expr:
    """An expression along an axis, as one along a part of it."""
    made: dict[int, Expr] = {}
    for expr in reachable([whole], _list_alike):
        made[id(expr)] = _take(t, expr, units, lambda arg: made[id(arg)])
    return made[id(whole)]


def _list_alike(expr: Expr) -> tuple[Expr, ...]:
    """Arguments along the same axis, of which a part is to be taken."""
    return expr.args if expr.domain is not None and isinstance(expr, Elementwise) else ()


def _take(t: Translator, expr: Expr, units: Stretch, taken: Callable[[Expr], Expr]) -> Expr:
    g, size = t.g, units.size
    if expr.domain is None:
        return expr
    match expr:
        case Read():
            return g.read(expr.access, expr.kind, _part_of(t, expr.table, units), size)
        case IsUnit():
            return g.is_unit(expr.units.part(units))
        case Product():
            weight, base = (_part_of(t, table, units) for table in (expr.weight, expr.base))
            return g.product(expr.args[0], expr.units.part(units), weight, base, *expr.args[1:])
        case Concat():
            return _take_across(t, expr, units)
        case Lookup():
            return g.lookup(expr.args[0], expr.kind, size, _part_of(t, expr.table, units))
        case Spread():
            return g.spread_part(expr, units.start, size, units.step)
        case Apply():
            return g.apply(expr.function, *map(taken, expr.args))
        case Select():
            condition, value, other = map(taken, expr.args)
            return g.select(condition, value, other)
        case Cast():
            return g.cast(taken(expr.args[0]), expr.kind)
        case _:
            raise AssertionError(f"{type(expr).__name__} has no axis")


def _take_across(t: Translator, whole: Concat, units: Stretch) -> Expr:
    """Units of what stands one after the other."""
    if units.step != 1:
        raise Unfusable("some units of a concatenation")
    parts, start, end = [], 0, units.start + units.size
    for part in whole.args:
        size = part.domain or 1
        first, last = max(units.start, start), min(end, start + size)
        if first < last:
            inner = Stretch(first - start, last - first)
            parts.append(part if inner.size == size else take_part(t, part, inner))
        start += size
    return parts[0] if len(parts) == 1 else t.g.concat(parts)


def _part_of(t: Translator, number: int, units: Stretch) -> int:
    """The table that holds these units of another."""
    table = list(t.program.tables)[number]
    if isinstance(table, Units | Replaced | Displaced | Entering):
        raise Unfusable("a part of what candidates replace as a whole")
    return t.program.table(PartOf(table, units))


def take_unit(t: Translator, value: Changed, old: Expr, number: int) -> Changed:
    """One unit of a changed value, whose base is `old` along the axis, as a value per lane."""
    one = Stretch(number, 1)
    if not value.column:
        taken = take_part(t, value.expr, one)
        return Changed(
            taken if taken.domain is None else t.g.pick(taken, t.g.constant(0, Kind.I64))
        )
    assert isinstance(old, Read)
    before = t.g.read(Access.LANE, old.kind, _part_of(t, old.table, one))
    here = t.g.apply(Fn.EQ, t.g.unit(), t.g.constant(number, Kind.I64))
    now = t.g.select(here, value.expr, before)
    t.leave_axis(now, before)
    return Changed(now)


def take_units(t: Translator, value: Expr, units: Stretch) -> Changed:
    """Some units of a changed value."""
    taken = take_part(t, value, units)
    return Changed(taken, None if taken.domain is None else -1)
