"""Arithmetic, comparisons, logic and copies, number by number: one builder per expression."""

import math
from dataclasses import replace

from hardstep.evaluation.fused.expressions import COMPARISONS, Expr, Fn, Kind, Number, Unfusable
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.translate import Translator
from hardstep.evaluation.fused.updates import update_sum
from hardstep.evaluation.gathered.shapes import call_addition, call_copy, call_scaling
from hardstep.evaluation.ops.elementwise import Build, Operands, elementwise, read
from hardstep.evaluation.ops.formulas import Term, erf, exp, formula, log, log1p, maximum, where
from hardstep.evaluation.trace.nodes import Node


def apply(function: Fn, num: int = 1) -> Build:
    """A function of the first operands."""

    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        return g.apply(function, *[read(g, arg, kind) for arg in args[:num]])

    return build


def _add_scaled(function: Fn, reverse: bool = False) -> Build:
    """A ± alpha·b; alpha is the third operand."""

    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        a, b = (read(g, arg, kind) for arg in args[:2])
        a, b = (b, a) if reverse else (a, b)
        alpha = args[2] if len(args) > 2 and args[2] is not None else 1
        return g.apply(function, a, b if alpha == 1 else g.apply(Fn.MUL, b, read(g, alpha, kind)))

    return build


def _combine_truths(function: Fn) -> Build:
    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        if kind is not Kind.I1:
            raise Unfusable(f"{function.value} of integers")
        return g.apply(function, *[read(g, arg, kind) for arg in args])

    return build


def clamp(g: Graph, args: Operands, kind: Kind) -> Expr:
    """A value between two bounds, of which either may be missing."""
    given, low, high = [*args, None, None][:3]
    value = read(g, given, kind)
    if low is not None:
        value = g.apply(Fn.MAX, value, read(g, low, kind))
    if high is not None:
        value = g.apply(Fn.MIN, value, read(g, high, kind))
    return value


def _clamp_max(g: Graph, args: Operands, kind: Kind) -> Expr:
    return clamp(g, [args[0], None, args[1]], kind)


def _where(g: Graph, args: Operands, kind: Kind) -> Expr:
    condition, a, b = args
    left, right = (read(g, arg, kind) for arg in (a, b))
    return g.select(read(g, condition, Kind.I1), left, right)


def _masked_fill(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, mask, number = args
    return _where(g, [mask, number, value], kind)


def keep(g: Graph, args: Operands, kind: Kind) -> Expr:
    """The first operand, perhaps in another kind."""
    return read(g, args[0], kind)


def _copy(g: Graph, args: Operands, kind: Kind) -> Expr:
    return read(g, args[1], kind)  # aten.copy(old, new)


def _sign(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, zero = read(g, args[0], kind), g.constant(0, kind)
    up, down = (g.cast(g.apply(side, value, zero), kind) for side in (Fn.GT, Fn.LT))
    return g.apply(Fn.SUB, up, down)


def _power(g: Graph, args: Operands, kind: Kind) -> Expr:
    base, exponent = args
    if isinstance(exponent, Expr | str | None) or exponent not in (1, 2, 3, 0.5):
        raise Unfusable(f"pow with exponent {exponent}")
    base = read(g, base, kind)
    if exponent == 0.5:
        return g.apply(Fn.SQRT, base)
    result = base
    for _ in range(int(exponent) - 1):
        result = g.apply(Fn.MUL, result, base)
    return result


def _reciprocal(g: Graph, args: Operands, kind: Kind) -> Expr:
    return g.apply(Fn.DIV, g.constant(1.0, kind), read(g, args[0], kind))


def _rsqrt(g: Graph, args: Operands, kind: Kind) -> Expr:
    return _reciprocal(g, [g.apply(Fn.SQRT, read(g, args[0], kind))], kind)


def _divide(g: Graph, args: Operands, kind: Kind) -> Expr:
    mode = args[2] if len(args) > 2 else None
    if mode is not None and not kind.is_float:
        raise Unfusable("division of integers")
    if mode == "floor":  # torch's is exact where the rounded quotient reaches the next number
        raise Unfusable("division with rounding_mode floor")
    quotient = apply(Fn.DIV, 2)(g, args, kind)
    return quotient if mode is None else g.apply(Fn.TRUNC, quotient)


def _remainder(g: Graph, args: Operands, kind: Kind) -> Expr:
    if kind is not Kind.I64 or not isinstance(args[1], int) or args[1] <= 0:
        raise Unfusable("remainder other than of integers by a positive number")
    return g.apply(Fn.MOD, read(g, args[0], kind), g.constant(args[1], kind))


def _addcmul(g: Graph, args: Operands, kind: Kind) -> Expr:
    scale = args[3] if len(args) > 3 and args[3] is not None else 1
    total, a, b = (read(g, arg, kind) for arg in args[:3])
    product = g.apply(Fn.MUL, a, b)
    if scale != 1:
        product = g.apply(Fn.MUL, read(g, scale, kind), product)
    return g.apply(Fn.ADD, total, product)


def _add_quotient(total: Term, a: Term, b: Term, value: Number = 1) -> Term:
    return total + value * (a / b)


def _interpolate(start: Term, end: Term, weight: Term | Number) -> Term:
    if isinstance(weight, Term):
        near, far = start + weight * (end - start), end - (end - start) * (1 - weight)
        return where(abs(weight) < 0.5, near, far)
    if abs(weight) < 0.5:
        return start + weight * (end - start)
    return end - (end - start) * (1 - weight)


def _add_logarithms(a: Term, b: Term) -> Term:
    """The logarithm of a sum of exponentials; two infinities of one sign are one."""
    return where(a.equals(b), a + math.log(2), maximum(a, b) + log1p(exp(-abs(a - b))))


def _step(x: Term, at_zero: Term) -> Term:
    return where(x.equals(0), at_zero, where(x > 0, x.constant(1), 0))


def _lower_sum(t: Translator, node: Node) -> None:
    if node.kwargs or len(node.args) > 2 or not update_sum(t, node):
        assert _SUM.lanes is not None
        _SUM.lanes(t, node)


_SUM = elementwise("add", _add_scaled(Fn.ADD), keyword="alpha")
_COPIED = ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format")
_KNOWN = (
    replace(_SUM, lanes=_lower_sum, apart=call_addition),
    elementwise("sub", _add_scaled(Fn.SUB), keyword="alpha"),
    elementwise("rsub", _add_scaled(Fn.SUB, reverse=True)),
    replace(elementwise("mul", apply(Fn.MUL, 2)), apart=call_scaling),
    replace(elementwise("div", _divide, keyword="rounding_mode"), apart=call_scaling),
    elementwise("addcmul", _addcmul, keyword="value"),
    elementwise("addcdiv", formula(_add_quotient), keyword="value"),
    elementwise("lerp", formula(_interpolate)),
    elementwise("maximum", apply(Fn.MAX, 2)),
    elementwise("minimum", apply(Fn.MIN, 2)),
    elementwise("remainder", _remainder),
    elementwise("pow", _power),
    elementwise("reciprocal", _reciprocal),
    elementwise("sqrt", apply(Fn.SQRT)),
    elementwise("rsqrt", _rsqrt),
    elementwise("exp", apply(Fn.EXP)),
    elementwise("expm1", apply(Fn.EXPM1)),
    elementwise("log", apply(Fn.LOG)),
    elementwise("log1p", formula(log1p)),
    elementwise("log2", formula(lambda x: log(x) * (1 / math.log(2)))),
    elementwise("log10", formula(lambda x: log(x) * (1 / math.log(10)))),
    elementwise("logaddexp", formula(_add_logarithms)),
    elementwise("erf", formula(erf)),
    elementwise("neg", apply(Fn.NEG)),
    elementwise("abs", apply(Fn.ABS)),
    elementwise("sign", _sign, is_hard=True),
    elementwise("sgn", _sign, is_hard=True),
    elementwise("floor", apply(Fn.FLOOR), is_hard=True),
    elementwise("ceil", apply(Fn.CEIL), is_hard=True),
    elementwise("trunc", apply(Fn.TRUNC), is_hard=True),
    elementwise("round", apply(Fn.RINT), is_hard=True),
    elementwise("frac", formula(lambda x: x - x.apply(Fn.TRUNC))),
    elementwise("heaviside", formula(_step), is_hard=True),
    elementwise("clamp", clamp),
    elementwise("clamp_min", clamp),
    elementwise("clamp_max", _clamp_max),
    elementwise("where", _where),
    elementwise("masked_fill", _masked_fill),
    elementwise("logical_and", _combine_truths(Fn.AND), is_hard=True),
    elementwise("logical_or", _combine_truths(Fn.OR), is_hard=True),
    elementwise("logical_xor", _combine_truths(Fn.XOR)),
    elementwise("logical_not", _combine_truths(Fn.NOT)),
    elementwise("bitwise_and", _combine_truths(Fn.AND), is_hard=True),
    elementwise("bitwise_or", _combine_truths(Fn.OR), is_hard=True),
    elementwise("bitwise_xor", _combine_truths(Fn.XOR)),
    elementwise("bitwise_not", _combine_truths(Fn.NOT)),
    elementwise("copy", _copy),
    replace(elementwise("clone", keep, ignored=("memory_format",)), apart=call_copy),
    elementwise("_to_copy", keep, ignored=_COPIED),
    elementwise("lift_fresh", keep),
    *(elementwise(one.value, apply(one, 2), compares=True, is_hard=True) for one in COMPARISONS),
)
# No kernel has these functions.
_OTHERS = """
    atan atan2 copysign cos cosh erfc floor_divide fmod isinf isnan logit nan_to_num sin sinh tan
    xlogy
"""
OPERATORS = (*_KNOWN, *map(elementwise, _OTHERS.split()))
