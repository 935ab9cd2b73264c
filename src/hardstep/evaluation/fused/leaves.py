"""Reading tables: where an expression without arguments finds its numbers.

Tables of values per example are stored with rows last, (units, rows), so that neighbouring
examples are neighbouring lanes. `%r` is the first row of the vector, `%c` the candidate, `%unit`
the unit it changes, `%stride` the number of rows with padding. Lanes of a packed vector take their
rows from the same places in an order of their own.
"""

from collections.abc import Callable

from hardstep.evaluation.fused.expressions import Expr
from hardstep.evaluation.fused.lanes import gather, rearranged
from hardstep.evaluation.fused.vectors import BYTES, ELEMENT, Value, Vectors


def read(v: Vectors, expr: Expr, j: Value) -> Value:
    """The instructions that read a leaf, at index j where it has a domain."""
    return LEAVES[expr.op](v, expr, j)


def _constant(v: Vectors, expr: Expr, j: Value) -> Value:
    text = expr.data
    if expr.kind == "i64":  # not by way of float, which has fewer digits
        return v.constant(int(text), expr.kind)
    return v.constant(text == "True" if expr.kind == "i1" else float(text), expr.kind)


def _one(v: Vectors, kind: str, slot: int, index: Value) -> Value:
    """One number of a table, in every lane."""
    place = v.offset(kind, f"%p{slot}", index)
    if kind == "i1":
        byte = v.let(f"load i8, ptr {place}")
        return v.splat(v.let(f"icmp ne i8 {byte}, 0"), "i1")
    return v.splat(v.let(f"load {ELEMENT[kind]}, ptr {place}, align {BYTES[kind]}"), kind)


def _row(v: Vectors, kind: str, slot: int, index: Value) -> Value:
    """The lanes' numbers in row `index` of a table (…, rows)."""
    start = v.let(f"mul i64 {index}, %stride")
    return _side_by_side(v, kind, slot, v.let(f"add i64 {start}, %r"))


def _side_by_side(v: Vectors, kind: str, slot: int, first: Value) -> Value:
    """A number per row of the block, from the first one's place on."""
    loaded = v.load(kind, v.offset(kind, f"%p{slot}", first), BYTES[kind])
    return rearranged(v, kind, loaded, v.packed.rows) if v.packed else loaded


def _scalar(v: Vectors, expr: Expr, j: Value) -> Value:
    return _one(v, expr.kind, expr.data, "0")


def _lane(v: Vectors, expr: Expr, j: Value) -> Value:
    return _side_by_side(v, expr.kind, expr.data, "%r")


def _unit_entry(v: Vectors, expr: Expr, j: Value) -> Value:
    return _one(v, expr.kind, expr.data, "%unit")


def _at_unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return _row(v, expr.kind, expr.data, "%unit")


def _matrix(v: Vectors, expr: Expr, j: Value) -> Value:
    return _row(v, expr.kind, expr.data, j)


def _entry(v: Vectors, expr: Expr, j: Value) -> Value:
    return _one(v, expr.kind, expr.data, j)


def _in_row(v: Vectors, expr: Expr, row: Value, j: Value) -> Value:
    start = v.let(f"mul i64 {row}, {expr.domain}")
    return _one(v, expr.kind, expr.data, v.let(f"add i64 {start}, {j}"))


def _weight(v: Vectors, expr: Expr, j: Value) -> Value:
    return _in_row(v, expr, "%unit", j)


def _candidate(v: Vectors, expr: Expr, j: Value) -> Value:
    if v.packed is None:
        return _in_row(v, expr, "%c", j)
    start = v.binary("mul", "i64", v.packed.candidates, v.constant(expr.domain or 1, "i64"))
    index = v.binary("add", "i64", start, v.splat(j, "i64"))
    return gather(v, expr.kind, f"%p{expr.data}", index, v.constant(True, "i1"))


def _is_unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return v.splat(v.let(f"icmp eq i64 {j}, %unit"), "i1")


def _unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return v.splat("%unit", "i64")


def _column(v: Vectors, expr: Expr, j: Value) -> Value:
    """A new column, computed before: a table (candidates, rows)."""
    return _row(v, expr.kind, expr.data, "%c")


def _linear(v: Vectors, expr: Expr, j: Value) -> Value:
    """A new column: the old one, a shift, and a few rows of a table of responses."""
    base, shift, responses, places, lengths, dim = expr.data
    total = _row(v, expr.kind, base, "%unit")
    total = v.binary("fadd", expr.kind, total, _one(v, expr.kind, shift, "%c"))
    first = v.let(f"mul i64 %c, {dim}")
    for k in range(dim):
        at = v.let(f"add i64 {first}, {k}")
        place = v.let(f"load i64, ptr {v.offset('i64', f'%p{places}', at)}")
        length = _one(v, expr.kind, lengths, at)
        total = v.fma(expr.kind, length, _row(v, expr.kind, responses, place), total)
    return total


def _spread(v: Vectors, expr: Expr, j: Value) -> Value:
    """A whole new layer: the old one and responses (particles · dim, units, rows)."""
    base, responses, particles, lengths, dim = expr.data
    total = _row(v, expr.kind, base, j)
    first = v.let(f"mul i64 %c, {dim}")
    particle = v.let(f"load i64, ptr {v.offset('i64', f'%p{particles}', '%c')}")
    start = v.let(f"mul i64 {particle}, {dim * (expr.domain or 1)}")
    start = v.let(f"add i64 {start}, {j}")
    for k in range(dim):
        row = v.let(f"add i64 {start}, {k * (expr.domain or 1)}")
        length = _one(v, expr.kind, lengths, v.let(f"add i64 {first}, {k}"))
        total = v.fma(expr.kind, length, _row(v, expr.kind, responses, row), total)
    return total


LEAVES: dict[str, Callable[[Vectors, Expr, Value], Value]] = {
    "constant": _constant,
    "scalar": _scalar,
    "lane": _lane,
    "unit": _unit,
    "unit_entry": _unit_entry,
    "at_unit": _at_unit,
    "matrix": _matrix,
    "entry": _entry,
    "weight": _weight,
    "candidate": _candidate,
    "is_unit": _is_unit,
    "column": _column,
    "linear": _linear,
    "spread": _spread,
}
