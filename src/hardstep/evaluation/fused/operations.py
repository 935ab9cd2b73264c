"""Element-wise operations: from aten's vocabulary to expressions, and from those to vectors."""

from collections.abc import Callable
from typing import Any

from hardstep.evaluation.fused.expressions import FLOATS, Expr, Graph, Unfusable
from hardstep.evaluation.fused.vectors import Value, Vectors

# -- aten -> expressions -------------------------------------------------------------------

Operand = Expr | float | int | bool | None
# Graph, operands, kind of the result (of comparisons: of what is compared).
Build = Callable[[Graph, list[Any], str], Expr]
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _arithmetic(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_expr(g, arg, kind), kind) for arg in args[:2])
        return g.apply(op, a, b)

    return build


def _added(sign: str, reverse: bool = False) -> Build:
    """A ± alpha·b; alpha is the third operand."""

    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_expr(g, arg, kind), kind) for arg in args[:2])
        a, b = (b, a) if reverse else (a, b)
        alpha = args[2] if len(args) > 2 and args[2] is not None else 1
        return g.apply(sign, a, b if alpha == 1 else g.apply("mul", b, _expr(g, alpha, kind)))

    return build


def _unary(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        return g.apply(op, g.cast(args[0], kind))

    return build


def _compared(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_expr(g, arg, kind), kind) for arg in args[:2])
        return g.apply(op, a, b, kind="i1")

    return build


def _logical(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        if kind != "i1":
            raise Unfusable(f"{op} of integers")
        return g.apply(op, *[_truth(g, _expr(g, arg, "i1")) for arg in args])

    return build


def _truth(g: Graph, value: Expr) -> Expr:
    return g.cast(value, "i1")


def _clamp(g: Graph, args: list[Any], kind: str) -> Expr:
    value, low, high = [*args, None, None][:3]
    value = g.cast(value, kind)
    if low is not None:
        value = g.apply("max", value, g.cast(_expr(g, low, kind), kind))
    if high is not None:
        value = g.apply("min", value, g.cast(_expr(g, high, kind), kind))
    return value


def _clamp_max(g: Graph, args: list[Any], kind: str) -> Expr:
    return _clamp(g, [args[0], None, args[1]], kind)


def _relu(g: Graph, args: list[Any], kind: str) -> Expr:
    return _clamp(g, [args[0], 0], kind)


def _leaky(g: Graph, args: list[Any], kind: str) -> Expr:
    slope = args[1] if len(args) > 1 else 0.01
    zero = g.constant(0.0, kind)
    scaled = g.apply("mul", args[0], g.constant(slope, kind))
    return g.apply("select", g.apply("gt", args[0], zero, kind="i1"), args[0], scaled, kind=kind)


def _where(g: Graph, args: list[Any], kind: str) -> Expr:
    condition, a, b = args
    left, right = (g.cast(_expr(g, arg, kind), kind) for arg in (a, b))
    return g.apply("select", _truth(g, condition), left, right, kind=kind)


def _masked_fill(g: Graph, args: list[Any], kind: str) -> Expr:
    value, mask, number = args
    return _where(g, [mask, number, value], kind)


def _same(g: Graph, args: list[Any], kind: str) -> Expr:
    return g.cast(args[0], kind)


def _copied(g: Graph, args: list[Any], kind: str) -> Expr:
    return g.cast(_expr(g, args[1], kind), kind)  # aten.copy(old, new)


def _sign(g: Graph, args: list[Any], kind: str) -> Expr:
    zero = g.constant(0, kind)
    up = g.cast(g.apply("gt", args[0], zero, kind="i1"), kind)
    down = g.cast(g.apply("lt", args[0], zero, kind="i1"), kind)
    return g.apply("sub", up, down)


def _power(g: Graph, args: list[Any], kind: str) -> Expr:
    base, exponent = args
    if not isinstance(base, Expr) or exponent not in (1, 2, 3, 0.5):
        raise Unfusable(f"pow with exponent {exponent}")
    base = g.cast(base, kind)
    if exponent == 0.5:
        return g.apply("sqrt", base)
    result = base
    for _ in range(int(exponent) - 1):
        result = g.apply("mul", result, base)
    return result


def _reciprocal(g: Graph, args: list[Any], kind: str) -> Expr:
    return g.apply("div", g.constant(1.0, kind), g.cast(args[0], kind))


def _rsqrt(g: Graph, args: list[Any], kind: str) -> Expr:
    return _reciprocal(g, [g.apply("sqrt", g.cast(args[0], kind))], kind)


def _silu(g: Graph, args: list[Any], kind: str) -> Expr:
    below = g.apply("add", g.constant(1.0, kind), g.apply("exp", g.apply("neg", args[0])))
    return g.apply("div", args[0], below)


def _hardtanh(g: Graph, args: list[Any], kind: str) -> Expr:
    return _clamp(g, [*args, *(-1, 1)[len(args) - 1 :]], kind)


def _divided(g: Graph, args: list[Any], kind: str) -> Expr:
    mode = args[2] if len(args) > 2 else None
    if mode is not None and kind not in FLOATS:
        raise Unfusable("division of integers")
    if mode == "floor":  # torch's is exact where the rounded quotient reaches the next number
        raise Unfusable("division with rounding_mode floor")
    quotient = _arithmetic("div")(g, args, kind)
    return quotient if mode is None else g.apply(mode, quotient)


def _remainder(g: Graph, args: list[Any], kind: str) -> Expr:
    if kind != "i64" or not isinstance(args[1], int) or args[1] <= 0:
        raise Unfusable("remainder other than of integers by a positive number")
    return g.apply("mod", g.cast(args[0], kind), g.constant(args[1], kind))


def _addcmul(g: Graph, args: list[Any], kind: str) -> Expr:
    scale = args[3] if len(args) > 3 and args[3] is not None else 1
    total, a, b = (g.cast(arg, kind) for arg in args[:3])
    product = g.apply("mul", a, b)
    if scale != 1:
        product = g.apply("mul", g.constant(scale, kind), product)
    return g.apply("add", total, product)


def _expr(g: Graph, value: Operand, kind: str) -> Expr:
    if isinstance(value, Expr):
        return value
    if value is None:
        raise Unfusable("an operand is missing")
    if isinstance(value, float) and kind == "i64":
        raise Unfusable("a fraction among integers")
    return g.constant(value, kind)


_UNARY = ("neg", "abs", "floor", "ceil", "trunc", "sqrt", "exp", "expm1", "log", "sigmoid", "tanh")
BUILD: dict[str, Build] = {
    "add": _added("add"),
    "sub": _added("sub"),
    "rsub": _added("sub", reverse=True),
    "mul": _arithmetic("mul"),
    "div": _divided,
    "maximum": _arithmetic("max"),
    "minimum": _arithmetic("min"),
    "remainder": _remainder,
    "addcmul": _addcmul,
    "pow": _power,
    "reciprocal": _reciprocal,
    "rsqrt": _rsqrt,
    "silu": _silu,
    "relu": _relu,
    "leaky_relu": _leaky,
    "hardtanh": _hardtanh,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp_max,
    "where": _where,
    "masked_fill": _masked_fill,
    "sign": _sign,
    "sgn": _sign,
    "copy": _copied,
    "round": _unary("rint"),
    "logical_and": _logical("and"),
    "logical_or": _logical("or"),
    "logical_xor": _logical("xor"),
    "logical_not": _logical("not"),
    "bitwise_and": _logical("and"),
    "bitwise_or": _logical("or"),
    "bitwise_xor": _logical("xor"),
    "bitwise_not": _logical("not"),
    **{name: _compared(name) for name in COMPARISONS},
    **{
        name: _unary(name)
        for name in [
            "neg",
            "abs",
            "floor",
            "ceil",
            "trunc",
            "sqrt",
            "exp",
            "expm1",
            "log",
            "sigmoid",
            "tanh",
        ]
    },
    **dict.fromkeys(("clone", "detach", "alias", "_to_copy", "lift_fresh"), _same),
}

# -- expressions -> vectors ----------------------------------------------------------------

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_INTRINSIC = {"floor", "ceil", "trunc", "rint", "sqrt"}
_FUNCTIONS = {"exp", "expm1", "log", "sigmoid", "tanh"}


def emit(v: Vectors, expr: Expr, args: list[Value]) -> Value:
    """The instructions of one element-wise expression."""
    op, kind = expr.op, expr.args[0].kind
    if op in _ORDERED:
        predicate = f"fcmp {_ORDERED[op]}" if kind in FLOATS else f"icmp {_SIGNED[op]}"
        if kind == "i1" and op not in ("eq", "ne"):
            raise Unfusable("order of truth values")
        return v.compare(predicate, kind, *args)
    if op in ("max", "min"):
        return extreme(v, op, kind, *args)
    if op in _FLOAT:
        table = _FLOAT if kind in FLOATS else _INTEGER
        if op not in table or kind == "i1":
            raise Unfusable(f"{op} of {kind}")
        return v.binary(table[op], kind, *args)
    if op in _INTRINSIC and kind in FLOATS:
        return v.call(op, kind, *args)
    if op in _FUNCTIONS and kind in FLOATS:
        return Value(getattr(v, op)(kind, *args))
    special = _SPECIAL.get(op)
    if special is None or (op in ("neg", "abs") and kind not in FLOATS):
        raise Unfusable(f"{op} of {kind}")
    return special(v, expr, args)


def extreme(v: Vectors, op: str, kind: str, a: Value, b: Value) -> Value:
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
