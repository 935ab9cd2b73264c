"""The instructions of one expression: reading a table, or an element-wise operation.

Tables of values per example are stored with examples last, (units, examples), so that neighboring
examples are neighboring lanes. In the text, `%r` is the first example of the vector, `%c` the
candidate, `%unit` the unit it changes, `%stride` the number of examples with padding. Lanes of a
packed vector take their examples from the same places in an order of their own.
"""

from typing import Literal, assert_never

from hardstep.evaluation.fused.emit_functions import FUNCTIONS
from hardstep.evaluation.fused.emit_vectors import Value, Vectors, gather, rearrange
from hardstep.evaluation.fused.expressions import (
    Access,
    Cast,
    Constant,
    Elementwise,
    Fn,
    IsUnit,
    Kind,
    Leaf,
    Linear,
    Read,
    Select,
    Spread,
    Stretch,
    Unfusable,
    Unit,
)


def emit_leaf(v: Vectors, expr: Leaf, j: Value) -> Value:
    """The instructions that read a leaf, at index j where it has a domain."""
    match expr:
        case Constant():
            return v.constant(expr.value, expr.kind)
        case Read():
            return _read(v, expr, j)
        case Unit():
            return v.splat("%unit", Kind.I64)
        case IsUnit():
            number = place_unit(v, expr.units, j)
            return v.splat(v.let(f"icmp eq i64 {number}, %unit"), Kind.I1)
        case Linear():
            return _add_to_column(v, expr)
        case Spread():
            return _add_to_layer(v, expr, j)
        case _:
            assert_never(expr)


def place_unit(v: Vectors, units: Stretch, j: Value) -> Value:
    """The number of the unit that stands at j."""
    if units.step != 1:
        j = v.let(f"mul i64 {j}, {units.step}")
    return v.let(f"add i64 {j}, {units.start}") if units.start else j


def _read(v: Vectors, expr: Read, j: Value) -> Value:
    kind, table = expr.kind, expr.table
    match expr.access:
        case Access.UNIT_LANE:
            return _read_line(v, kind, table, "%unit")
        case Access.AXIS_LANE:
            return _read_line(v, kind, table, j)
        case Access.CANDIDATE_LANE:
            return _read_line(v, kind, table, "%c")
        case Access.LANE:
            return _read_lanes(v, kind, table, "%r")
        case Access.FIRST:
            return _read_one(v, kind, table, "0")
        case Access.UNIT:
            return _read_one(v, kind, table, "%unit")
        case Access.AXIS:
            return _read_one(v, kind, table, j)
        case Access.UNIT_AXIS:
            return _read_in_line(v, expr, "%unit", j)
        case Access.CANDIDATE_AXIS:
            return _read_of_candidate(v, expr, j)
        case _:
            assert_never(expr.access)


def _read_one(v: Vectors, kind: Kind, table: int, index: Value) -> Value:
    """One number of a table, in every lane."""
    place = v.offset(kind, f"%p{table}", index)
    if kind is Kind.I1:
        byte = v.let(f"load i8, ptr {place}")
        return v.splat(v.let(f"icmp ne i8 {byte}, 0"), kind)
    return v.splat(v.let(f"load {kind.element}, ptr {place}, align {kind.num_bytes}"), kind)


def _read_line(v: Vectors, kind: Kind, table: int, index: Value) -> Value:
    """The lanes' numbers in line `index` of a table (…, examples)."""
    start = v.let(f"mul i64 {index}, %stride")
    return _read_lanes(v, kind, table, v.let(f"add i64 {start}, %r"))


def _read_lanes(v: Vectors, kind: Kind, table: int, first: Value) -> Value:
    """A number per example of the vector, from the first one's place on."""
    loaded = v.load(kind, v.offset(kind, f"%p{table}", first), kind.num_bytes)
    return rearrange(v, kind, loaded, v.packed.examples) if v.packed else loaded


def _read_in_line(v: Vectors, expr: Read, line: Value, j: Value) -> Value:
    start = v.let(f"mul i64 {line}, {expr.domain or 1}")
    return _read_one(v, expr.kind, expr.table, v.let(f"add i64 {start}, {j}"))


def _read_of_candidate(v: Vectors, expr: Read, j: Value) -> Value:
    if v.packed is None:
        return _read_in_line(v, expr, "%c", j)
    start = v.binary("mul", Kind.I64, v.packed.candidates, v.constant(expr.domain or 1, Kind.I64))
    index = v.binary("add", Kind.I64, start, v.splat(j, Kind.I64))
    return gather(v, expr.kind, f"%p{expr.table}", index, v.constant(True, Kind.I1))


def _add_to_column(v: Vectors, expr: Linear) -> Value:
    kind, move = expr.kind, expr.move
    total = _read_line(v, kind, move.base, "%unit")
    total = v.binary("fadd", kind, total, _read_one(v, kind, expr.shift, "%c"))
    first = v.let(f"mul i64 %c, {move.dim}")
    for k in range(move.dim):
        at = v.let(f"add i64 {first}, {k}")
        place = v.let(f"load i64, ptr {v.offset(Kind.I64, f'%p{expr.places}', at)}")
        length = _read_one(v, kind, move.lengths, at)
        total = v.fma(kind, length, _read_line(v, kind, move.responses, place), total)
    return total


def _add_to_layer(v: Vectors, expr: Spread, j: Value) -> Value:
    kind, move, units = expr.kind, expr.move, expr.size
    j = place_unit(v, Stretch(expr.start, units, expr.step), j)
    total = _read_line(v, kind, move.base, j)
    first = v.let(f"mul i64 %c, {move.dim}")
    particle = v.let(f"load i64, ptr {v.offset(Kind.I64, f'%p{expr.particles}', '%c')}")
    start = v.let(f"mul i64 {particle}, {move.dim * units}")
    start = v.let(f"add i64 {start}, {j}")
    for k in range(move.dim):
        line = v.let(f"add i64 {start}, {k * units}")
        length = _read_one(v, kind, move.lengths, v.let(f"add i64 {first}, {k}"))
        total = v.fma(kind, length, _read_line(v, kind, move.responses, line), total)
    return total


# -- element-wise operations -----------------------------------------------------------------

_FLOAT = {Fn.ADD: "fadd", Fn.SUB: "fsub", Fn.MUL: "fmul", Fn.DIV: "fdiv"}
_INTEGER = {Fn.ADD: "add", Fn.SUB: "sub", Fn.MUL: "mul"}
_BITS = {Fn.AND: "and", Fn.OR: "or", Fn.XOR: "xor"}
_ORDERED = {
    Fn.LT: "olt", Fn.LE: "ole", Fn.GT: "ogt", Fn.GE: "oge", Fn.EQ: "oeq", Fn.NE: "une",
}  # fmt: skip
_SIGNED = {
    Fn.LT: "slt", Fn.LE: "sle", Fn.GT: "sgt", Fn.GE: "sge", Fn.EQ: "eq", Fn.NE: "ne",
}  # fmt: skip
_INTRINSIC = {
    Fn.FLOOR: "floor", Fn.CEIL: "ceil", Fn.TRUNC: "trunc", Fn.RINT: "rint", Fn.SQRT: "sqrt",
    Fn.ABS: "fabs",
}  # fmt: skip


def emit_elementwise(v: Vectors, expr: Elementwise, args: list[Value]) -> Value:
    """The instructions of one element-wise expression."""
    if isinstance(expr, Select):
        return v.select(args[0], expr.kind, args[1], args[2])
    kind = expr.args[0].kind
    if isinstance(expr, Cast):
        return _cast(v, kind, expr.kind, args[0])
    function = expr.function
    if function in _ORDERED:
        predicate = f"fcmp {_ORDERED[function]}" if kind.is_float else f"icmp {_SIGNED[function]}"
        if kind is Kind.I1 and function not in (Fn.EQ, Fn.NE):
            raise Unfusable("order of truth values")
        return v.compare(predicate, kind, *args)
    found = (_emit_float if kind.is_float else _emit_integer)(v, function, kind, args)
    if found is not None:
        return found
    if function is Fn.MAX or function is Fn.MIN:
        return emit_extreme(v, function, kind, *args)
    raise Unfusable(f"{function.value} of {kind}")


def _emit_float(v: Vectors, function: Fn, kind: Kind, args: list[Value]) -> Value | None:
    if function in _FLOAT:
        return v.binary(_FLOAT[function], kind, *args)
    if function in _INTRINSIC:
        return v.call(_INTRINSIC[function], kind, *args)
    if function in FUNCTIONS:
        return FUNCTIONS[function](v, kind, *args)
    return v.let(f"fneg {v.type(kind)} {args[0]}") if function is Fn.NEG else None


def _emit_integer(v: Vectors, function: Fn, kind: Kind, args: list[Value]) -> Value | None:
    """Of integers, or of truth values."""
    if kind is Kind.I1:
        if function is Fn.NOT:
            return v.binary("xor", kind, args[0], v.constant(True, kind))
        return v.binary(_BITS[function], kind, *args) if function in _BITS else None
    if function is not Fn.MOD:
        return v.binary(_INTEGER[function], kind, *args) if function in _INTEGER else None
    # Python's remainder: the sign of the divisor, which is positive here.
    rest = v.binary("srem", kind, *args)
    negative = v.compare("icmp slt", kind, rest, v.constant(0, kind))
    return v.select(negative, kind, v.binary("add", kind, rest, args[1]), rest)


def emit_extreme(
    v: Vectors, function: Literal[Fn.MAX, Fn.MIN], kind: Kind, a: Value, b: Value
) -> Value:
    """The larger or smaller of two; not-a-number wins, as in torch."""
    largest = function is Fn.MAX
    if kind is Kind.I1:
        return v.binary("or" if largest else "and", kind, a, b)
    if not kind.is_float:
        return v.select(v.compare(f"icmp s{'g' if largest else 'l'}t", kind, a, b), kind, a, b)
    beats = f"fcmp {'ogt' if largest else 'olt'}"
    if b.startswith("<"):  # a constant is never not-a-number: keep `a` unless it beats it
        return v.select(v.compare(beats, kind, b, a), kind, b, a)
    better, nan = v.compare(beats, kind, a, b), v.compare("fcmp uno", kind, a, a)
    return v.select(v.binary("or", Kind.I1, better, nan), kind, a, b)


def _cast(v: Vectors, old: Kind, new: Kind, value: Value) -> Value:
    if new is Kind.I1:
        return v.compare("fcmp une" if old.is_float else "icmp ne", old, value, v.constant(0, old))
    if old is Kind.I1:
        return v.select(value, new, v.constant(1, new), v.constant(0, new))
    if old.is_float and new.is_float:
        return v.convert("fpext" if new is Kind.F64 else "fptrunc", value, old, new)
    return v.convert("fptosi" if old.is_float else "sitofp", value, old, new)
