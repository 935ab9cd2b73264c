"""Element-wise operations of aten as expressions: one builder per name, in the table `BUILD`."""

from collections.abc import Callable
from typing import Any

from hardstep.evaluation.fused.expressions import FLOATS, Expr, Graph, Unfusable

Operand = Expr | float | int | bool | None
# Graph, operands, kind of the result (of comparisons: of what is compared).
Build = Callable[[Graph, list[Any], str], Expr]
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _combine(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_as_expr(g, arg, kind), kind) for arg in args[:2])
        return g.apply(op, a, b)

    return build


def _add_scaled(sign: str, reverse: bool = False) -> Build:
    """A ± alpha·b; alpha is the third operand."""

    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_as_expr(g, arg, kind), kind) for arg in args[:2])
        a, b = (b, a) if reverse else (a, b)
        alpha = args[2] if len(args) > 2 and args[2] is not None else 1
        return g.apply(sign, a, b if alpha == 1 else g.apply("mul", b, _as_expr(g, alpha, kind)))

    return build


def _apply(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        return g.apply(op, g.cast(args[0], kind))

    return build


def _compare(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        a, b = (g.cast(_as_expr(g, arg, kind), kind) for arg in args[:2])
        return g.apply(op, a, b, kind="i1")

    return build


def _combine_truths(op: str) -> Build:
    def build(g: Graph, args: list[Any], kind: str) -> Expr:
        if kind != "i1":
            raise Unfusable(f"{op} of integers")
        return g.apply(op, *[g.cast(_as_expr(g, arg, "i1"), "i1") for arg in args])

    return build


def _clamp(g: Graph, args: list[Any], kind: str) -> Expr:
    value, low, high = [*args, None, None][:3]
    value = g.cast(value, kind)
    if low is not None:
        value = g.apply("max", value, g.cast(_as_expr(g, low, kind), kind))
    if high is not None:
        value = g.apply("min", value, g.cast(_as_expr(g, high, kind), kind))
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
    left, right = (g.cast(_as_expr(g, arg, kind), kind) for arg in (a, b))
    return g.apply("select", g.cast(condition, "i1"), left, right, kind=kind)


def _masked_fill(g: Graph, args: list[Any], kind: str) -> Expr:
    value, mask, number = args
    return _where(g, [mask, number, value], kind)


def _keep(g: Graph, args: list[Any], kind: str) -> Expr:
    return g.cast(args[0], kind)


def _copy(g: Graph, args: list[Any], kind: str) -> Expr:
    return g.cast(_as_expr(g, args[1], kind), kind)  # aten.copy(old, new)


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


def _divide(g: Graph, args: list[Any], kind: str) -> Expr:
    mode = args[2] if len(args) > 2 else None
    if mode is not None and kind not in FLOATS:
        raise Unfusable("division of integers")
    if mode == "floor":  # torch's is exact where the rounded quotient reaches the next number
        raise Unfusable("division with rounding_mode floor")
    quotient = _combine("div")(g, args, kind)
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


def _as_expr(g: Graph, value: Operand, kind: str) -> Expr:
    if isinstance(value, Expr):
        return value
    if value is None:
        raise Unfusable("an operand is missing")
    if isinstance(value, float) and kind == "i64":
        raise Unfusable("a fraction among integers")
    return g.constant(value, kind)


_UNARY = ("neg", "abs", "floor", "ceil", "trunc", "sqrt", "exp", "expm1", "log", "sigmoid", "tanh")
BUILD: dict[str, Build] = {
    "add": _add_scaled("add"),
    "sub": _add_scaled("sub"),
    "rsub": _add_scaled("sub", reverse=True),
    "mul": _combine("mul"),
    "div": _divide,
    "maximum": _combine("max"),
    "minimum": _combine("min"),
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
    "copy": _copy,
    "round": _apply("rint"),
    "logical_and": _combine_truths("and"),
    "logical_or": _combine_truths("or"),
    "logical_xor": _combine_truths("xor"),
    "logical_not": _combine_truths("not"),
    "bitwise_and": _combine_truths("and"),
    "bitwise_or": _combine_truths("or"),
    "bitwise_xor": _combine_truths("xor"),
    "bitwise_not": _combine_truths("not"),
    **{name: _compare(name) for name in COMPARISONS},
    **{name: _apply(name) for name in _UNARY},
    **dict.fromkeys(("clone", "detach", "alias", "_to_copy", "lift_fresh"), _keep),
}
