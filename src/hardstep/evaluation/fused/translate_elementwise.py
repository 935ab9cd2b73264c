"""Element-wise operations of aten as expressions: one builder per name, in the table `BUILD`."""

from collections.abc import Callable, Sequence

from hardstep.evaluation.fused.expressions import (
    COMPARISONS,
    Expr,
    Fn,
    Graph,
    Kind,
    Number,
    Unfusable,
)

Operand = Expr | Number | str | None  # strings are rounding modes
Operands = Sequence[Operand]
# Graph, operands, kind of the result (of comparisons: of what is compared).
Build = Callable[[Graph, Operands, Kind], Expr]


def _read(g: Graph, value: Operand, kind: Kind) -> Expr:
    """An operand in a kind."""
    if value is None or isinstance(value, str):
        raise Unfusable("an operand is missing")
    if not isinstance(value, Number):
        return g.cast(value, kind)
    if isinstance(value, float) and kind is Kind.I64:
        raise Unfusable("a fraction among integers")
    return g.constant(value, kind)


def _apply(function: Fn, num: int = 1) -> Build:
    """A function of the first operands."""

    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        return g.apply(function, *[_read(g, arg, kind) for arg in args[:num]])

    return build


def _add_scaled(function: Fn, reverse: bool = False) -> Build:
    """A ± alpha·b; alpha is the third operand."""

    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        a, b = (_read(g, arg, kind) for arg in args[:2])
        a, b = (b, a) if reverse else (a, b)
        alpha = args[2] if len(args) > 2 and args[2] is not None else 1
        return g.apply(function, a, b if alpha == 1 else g.apply(Fn.MUL, b, _read(g, alpha, kind)))

    return build


def _combine_truths(function: Fn) -> Build:
    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        if kind is not Kind.I1:
            raise Unfusable(f"{function.value} of integers")
        return g.apply(function, *[_read(g, arg, kind) for arg in args])

    return build


def _clamp(g: Graph, args: Operands, kind: Kind) -> Expr:
    given, low, high = [*args, None, None][:3]
    value = _read(g, given, kind)
    if low is not None:
        value = g.apply(Fn.MAX, value, _read(g, low, kind))
    if high is not None:
        value = g.apply(Fn.MIN, value, _read(g, high, kind))
    return value


def _clamp_max(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _clamp(g, [args[0], None, args[1]], kind)


def _relu(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _clamp(g, [args[0], 0], kind)


def _leaky(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, zero = _read(g, args[0], kind), g.constant(0.0, kind)
    scaled = g.apply(Fn.MUL, value, _read(g, args[1] if len(args) > 1 else 0.01, kind))
    return g.select(g.apply(Fn.GT, value, zero), value, scaled)


def _where(g: Graph, args: Operands, kind: Kind) -> Expr:
    condition, a, b = args
    left, right = (_read(g, arg, kind) for arg in (a, b))
    return g.select(_read(g, condition, Kind.I1), left, right)


def _masked_fill(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, mask, number = args
    return _where(g, [mask, number, value], kind)


def _keep(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _read(g, args[0], kind)


def _copy(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _read(g, args[1], kind)  # aten.copy(old, new)


def _sign(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, zero = _read(g, args[0], kind), g.constant(0, kind)
    up, down = (g.cast(g.apply(side, value, zero), kind) for side in (Fn.GT, Fn.LT))
    return g.apply(Fn.SUB, up, down)


def _power(g: Graph, args: Operands, kind: Kind) -> Expr:
    base, exponent = args
    if isinstance(exponent, Expr | str | None) or exponent not in (1, 2, 3, 0.5):
        raise Unfusable(f"pow with exponent {exponent}")
    base = _read(g, base, kind)
    if exponent == 0.5:
        return g.apply(Fn.SQRT, base)
    result = base
    for _ in range(int(exponent) - 1):
        result = g.apply(Fn.MUL, result, base)
    return result


def _reciprocal(g: Graph, args: Operands, kind: Kind) -> Expr:
    return g.apply(Fn.DIV, g.constant(1.0, kind), _read(g, args[0], kind))


def _rsqrt(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _reciprocal(g, [g.apply(Fn.SQRT, _read(g, args[0], kind))], kind)


def _silu(g: Graph, args: Operands, kind: Kind) -> Expr:
    value = _read(g, args[0], kind)
    below = g.apply(Fn.ADD, g.constant(1.0, kind), g.apply(Fn.EXP, g.apply(Fn.NEG, value)))
    return g.apply(Fn.DIV, value, below)


def _hardtanh(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _clamp(g, [*args, *(-1, 1)[len(args) - 1 :]], kind)


def _divide(g: Graph, args: Operands, kind: Kind) -> Expr:
    mode = args[2] if len(args) > 2 else None
    if mode is not None and not kind.is_float:
        raise Unfusable("division of integers")
    if mode == "floor":  # torch's is exact where the rounded quotient reaches the next number
        raise Unfusable("division with rounding_mode floor")
    quotient = _apply(Fn.DIV, 2)(g, args, kind)
    return quotient if mode is None else g.apply(Fn.TRUNC, quotient)


def _remainder(g: Graph, args: Operands, kind: Kind) -> Expr:
    if kind is not Kind.I64 or not isinstance(args[1], int) or args[1] <= 0:
        raise Unfusable("remainder other than of integers by a positive number")
    return g.apply(Fn.MOD, _read(g, args[0], kind), g.constant(args[1], kind))


def _addcmul(g: Graph, args: Operands, kind: Kind) -> Expr:
    scale = args[3] if len(args) > 3 and args[3] is not None else 1
    total, a, b = (_read(g, arg, kind) for arg in args[:3])
    product = g.apply(Fn.MUL, a, b)
    if scale != 1:
        product = g.apply(Fn.MUL, _read(g, scale, kind), product)
    return g.apply(Fn.ADD, total, product)


_UNARY = (
    Fn.NEG, Fn.ABS, Fn.FLOOR, Fn.CEIL, Fn.TRUNC, Fn.SQRT, Fn.EXP, Fn.EXPM1, Fn.LOG, Fn.SIGMOID,
    Fn.TANH,
)  # fmt: skip
BUILD: dict[str, Build] = {
    "add": _add_scaled(Fn.ADD),
    "sub": _add_scaled(Fn.SUB),
    "rsub": _add_scaled(Fn.SUB, reverse=True),
    "mul": _apply(Fn.MUL, 2),
    "div": _divide,
    "maximum": _apply(Fn.MAX, 2),
    "minimum": _apply(Fn.MIN, 2),
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
    "round": _apply(Fn.RINT),
    "logical_and": _combine_truths(Fn.AND),
    "logical_or": _combine_truths(Fn.OR),
    "logical_xor": _combine_truths(Fn.XOR),
    "logical_not": _combine_truths(Fn.NOT),
    "bitwise_and": _combine_truths(Fn.AND),
    "bitwise_or": _combine_truths(Fn.OR),
    "bitwise_xor": _combine_truths(Fn.XOR),
    "bitwise_not": _combine_truths(Fn.NOT),
    **{function.value: _apply(function, 2) for function in COMPARISONS},
    **{function.value: _apply(function) for function in _UNARY},
    **dict.fromkeys(("clone", "detach", "alias", "_to_copy", "lift_fresh"), _keep),
}
