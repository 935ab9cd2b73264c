"""The instructions of one expression: reading a table, or an element-wise operation.

Tables of values per example are stored with examples last, (units, examples), so that neighboring
examples are neighboring lanes. In the text, `%r` is the first example of the vector, `%c` the
candidate, `%unit` the unit it changes, `%stride` the number of examples with padding. Lanes of a
packed vector take their examples from the same places in an order of their own.
"""

from collections.abc import Callable

from hardstep.evaluation.fused.emit_functions import FUNCTIONS
from hardstep.evaluation.fused.emit_vectors import BYTES, ELEMENT, Value, Vectors, gather, rearrange
from hardstep.evaluation.fused.expressions import FLOATS, Expr, Unfusable


def emit_leaf(v: Vectors, expr: Expr, j: Value) -> Value:
    """The instructions that read a leaf, at index j where it has a domain."""
    return _LEAVES[expr.op](v, expr, j)


def _constant(v: Vectors, expr: Expr, j: Value) -> Value:
    text = expr.data
    if expr.kind == "i64":  # not by way of float, which has fewer digits
        return v.constant(int(text), expr.kind)
    return v.constant(text == "True" if expr.kind == "i1" else float(text), expr.kind)


def _read_one(v: Vectors, kind: str, slot: int, index: Value) -> Value:
    """One number of a table, in every lane."""
    place = v.offset(kind, f"%p{slot}", index)
    if kind == "i1":
        byte = v.let(f"load i8, ptr {place}")
        return v.splat(v.let(f"icmp ne i8 {byte}, 0"), "i1")
    return v.splat(v.let(f"load {ELEMENT[kind]}, ptr {place}, align {BYTES[kind]}"), kind)


def _read_line(v: Vectors, kind: str, slot: int, index: Value) -> Value:
    """The lanes' numbers in line `index` of a table (…, examples)."""
    start = v.let(f"mul i64 {index}, %stride")
    return _read_lanes(v, kind, slot, v.let(f"add i64 {start}, %r"))


def _read_lanes(v: Vectors, kind: str, slot: int, first: Value) -> Value:
    """A number per example of the vector, from the first one's place on."""
    loaded = v.load(kind, v.offset(kind, f"%p{slot}", first), BYTES[kind])
    return rearrange(v, kind, loaded, v.packed.examples) if v.packed else loaded


def _scalar(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_one(v, expr.kind, expr.data, "0")


def _lane(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_lanes(v, expr.kind, expr.data, "%r")


def _unit_entry(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_one(v, expr.kind, expr.data, "%unit")


def _at_unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_line(v, expr.kind, expr.data, "%unit")


def _matrix(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_line(v, expr.kind, expr.data, j)


def _entry(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_one(v, expr.kind, expr.data, j)


def _read_in_line(v: Vectors, expr: Expr, line: Value, j: Value) -> Value:
    start = v.let(f"mul i64 {line}, {expr.domain}")
    return _read_one(v, expr.kind, expr.data, v.let(f"add i64 {start}, {j}"))


def _weight(v: Vectors, expr: Expr, j: Value) -> Value:
    return _read_in_line(v, expr, "%unit", j)


def _candidate(v: Vectors, expr: Expr, j: Value) -> Value:
    if v.packed is None:
        return _read_in_line(v, expr, "%c", j)
    start = v.binary("mul", "i64", v.packed.candidates, v.constant(expr.domain or 1, "i64"))
    index = v.binary("add", "i64", start, v.splat(j, "i64"))
    return gather(v, expr.kind, f"%p{expr.data}", index, v.constant(True, "i1"))


def _is_unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return v.splat(v.let(f"icmp eq i64 {j}, %unit"), "i1")


def _unit(v: Vectors, expr: Expr, j: Value) -> Value:
    return v.splat("%unit", "i64")


def _column(v: Vectors, expr: Expr, j: Value) -> Value:
    """A new column, computed before: a table (candidates, examples)."""
    return _read_line(v, expr.kind, expr.data, "%c")


def _linear(v: Vectors, expr: Expr, j: Value) -> Value:
    """A new column: the old one, a shift, and a few lines of a table of responses."""
    base, shift, responses, places, lengths, dim = expr.data
    total = _read_line(v, expr.kind, base, "%unit")
    total = v.binary("fadd", expr.kind, total, _read_one(v, expr.kind, shift, "%c"))
    first = v.let(f"mul i64 %c, {dim}")
    for k in range(dim):
        at = v.let(f"add i64 {first}, {k}")
        place = v.let(f"load i64, ptr {v.offset('i64', f'%p{places}', at)}")
        length = _read_one(v, expr.kind, lengths, at)
        total = v.fma(expr.kind, length, _read_line(v, expr.kind, responses, place), total)
    return total


def _spread(v: Vectors, expr: Expr, j: Value) -> Value:
    """A whole new layer: the old one and responses (particles · dim, units, examples)."""
    base, responses, particles, lengths, units, dim = expr.data
    size, first_unit, step = units  # of the layer; the first of those that are read, and how far on
    if (first_unit, step) != (0, 1):
        j = v.let(f"add i64 {v.let(f'mul i64 {j}, {step}')}, {first_unit}")
    total = _read_line(v, expr.kind, base, j)
    first = v.let(f"mul i64 %c, {dim}")
    particle = v.let(f"load i64, ptr {v.offset('i64', f'%p{particles}', '%c')}")
    start = v.let(f"mul i64 {particle}, {dim * size}")
    start = v.let(f"add i64 {start}, {j}")
    for k in range(dim):
        line = v.let(f"add i64 {start}, {k * size}")
        length = _read_one(v, expr.kind, lengths, v.let(f"add i64 {first}, {k}"))
        total = v.fma(expr.kind, length, _read_line(v, expr.kind, responses, line), total)
    return total


_LEAVES: dict[str, Callable[[Vectors, Expr, Value], Value]] = {
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


# -- element-wise operations -----------------------------------------------------------------

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_INTRINSIC = {"floor", "ceil", "trunc", "rint", "sqrt"}


def emit_elementwise(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    """The instructions of one element-wise expression."""
    op, kind = expr.op, expr.args[0].kind
    if op in _ORDERED:
        predicate = f"fcmp {_ORDERED[op]}" if kind in FLOATS else f"icmp {_SIGNED[op]}"
        if kind == "i1" and op not in ("eq", "ne"):
            raise Unfusable("order of truth values")
        return v.compare(predicate, kind, *args)
    if op in ("max", "min"):
        return emit_extreme(v, op, kind, *args)
    if op in _FLOAT:
        table = _FLOAT if kind in FLOATS else _INTEGER
        if op not in table or kind == "i1":
            raise Unfusable(f"{op} of {kind}")
        return v.binary(table[op], kind, *args)
    if op in _INTRINSIC and kind in FLOATS:
        return v.call(op, kind, *args)
    if op in FUNCTIONS and kind in FLOATS:
        return FUNCTIONS[op](v, kind, *args)
    special = _SPECIAL.get(op)
    if special is None or (op in ("neg", "abs") and kind not in FLOATS):
        raise Unfusable(f"{op} of {kind}")
    return special(v, expr, args)


def emit_extreme(v: Vectors, op: str, kind: str, a: Value, b: Value) -> Value:
    """The larger or smaller of two; not-a-number wins, as in torch."""
    if kind == "i1":
        return v.binary("or" if op == "max" else "and", kind, a, b)
    if kind not in FLOATS:
        return v.select(v.compare(f"icmp s{'g' if op == 'max' else 'l'}t", kind, a, b), kind, a, b)
    if b.startswith("<"):  # a constant is never not-a-number: keep `a` unless it beats it
        beaten = v.compare(f"fcmp {'ogt' if op == 'max' else 'olt'}", kind, b, a)
        return v.select(beaten, kind, b, a)
    beats = v.compare(f"fcmp {'ogt' if op == 'max' else 'olt'}", kind, a, b)
    nan = v.compare("fcmp uno", kind, a, a)
    return v.select(v.binary("or", "i1", beats, nan), kind, a, b)


def _cast(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    old, new, value = expr.args[0].kind, expr.kind, args[0]
    if new == "i1":
        zero = v.constant(0, old)
        return v.compare("fcmp une" if old in FLOATS else "icmp ne", old, value, zero)
    if old == "i1":
        return v.select(value, new, v.constant(1, new), v.constant(0, new))
    names = {
        ("f32", "f64"): "fpext", ("f64", "f32"): "fptrunc", ("i64", "f32"): "sitofp",
        ("i64", "f64"): "sitofp", ("f32", "i64"): "fptosi", ("f64", "i64"): "fptosi",
    }  # fmt: skip
    return v.convert(names[old, new], value, old, new)


def _select(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    return v.select(args[0], expr.kind, args[1], args[2])


def _neg(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    return v.let(f"fneg {v.type(expr.kind)} {args[0]}")


def _abs(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    return v.call("fabs", expr.kind, args[0])


def _not(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    return v.binary("xor", "i1", args[0], v.constant(True, "i1"))


def _bits(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    return v.binary(expr.op, "i1", *args)


def _mod(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    """Python's remainder: the sign of the divisor, which is positive here."""
    rest = v.binary("srem", "i64", *args)
    negative = v.compare("icmp slt", "i64", rest, v.constant(0, "i64"))
    return v.select(negative, "i64", v.binary("add", "i64", rest, args[1]), rest)


_SPECIAL: dict[str, Callable[[Vectors, Expr, list[Value]], Value]] = {
    "cast": _cast,
    "select": _select,
    "neg": _neg,
    "abs": _abs,
    "not": _not,
    "and": _bits,
    "or": _bits,
    "xor": _bits,
    "mod": _mod,
}
