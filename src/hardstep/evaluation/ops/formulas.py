"""Formulas: functions of numbers that become expressions of a kernel.

elementwise("hardsigmoid", formula(lambda x: minimum(maximum(x + 3, 0), 6) / 6))
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from types import NoneType

from hardstep.evaluation.fused.expressions import Expr, Fn, Kind, Number
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.ops.elementwise import Build, Operands, read


@dataclass(frozen=True, eq=False)
class Term:
    """An expression of which Python's operators make others."""

    graph: Graph
    expr: Expr

    def apply(self, function: Fn, *others: "Term | Number") -> "Term":
        """A function of this term and others, which may be numbers."""
        kind = self.expr.kind
        given = [
            one.expr if isinstance(one, Term) else read(self.graph, one, kind) for one in others
        ]
        return Term(self.graph, self.graph.apply(function, self.expr, *given))

    def constant(self, value: Number) -> "Term":
        """A number of the same kind."""
        return Term(self.graph, read(self.graph, value, self.expr.kind))

    def __add__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.ADD, other)

    def __sub__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.SUB, other)

    def __mul__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.MUL, other)

    def __truediv__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.DIV, other)

    def __radd__(self, other: Number) -> "Term":
        return self.constant(other) + self

    def __rsub__(self, other: Number) -> "Term":
        return self.constant(other) - self

    def __rmul__(self, other: Number) -> "Term":
        return self.constant(other) * self

    def __rtruediv__(self, other: Number) -> "Term":
        return self.constant(other) / self

    def __neg__(self) -> "Term":
        return self.apply(Fn.NEG)

    def __abs__(self) -> "Term":
        return self.apply(Fn.ABS)

    def __lt__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.LT, other)

    def __le__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.LE, other)

    def __gt__(self, other: "Term | Number") -> "Term":
        return self.apply(Fn.GT, other)

    def equals(self, other: "Term | Number") -> "Term":
        """Whether it is the same number."""
        return self.apply(Fn.EQ, other)


def formula(function: Callable[..., Term]) -> Build:
    """The builder of a function of terms; operands that are not tensors stay as they are."""

    def build(g: Graph, args: Operands, kind: Kind) -> Expr:
        plain = (Number, str, NoneType)
        given = [arg if isinstance(arg, plain) else Term(g, g.cast(arg, kind)) for arg in args]
        return function(*given).expr

    return build


def where(condition: Term, then: Term | Number, otherwise: Term | Number) -> Term:
    """One of two, of which one may be a number."""
    like = then if isinstance(then, Term) else otherwise
    assert isinstance(like, Term)
    first, second = (
        one if isinstance(one, Term) else like.constant(one) for one in (then, otherwise)
    )
    return Term(like.graph, like.graph.select(condition.expr, first.expr, second.expr))


def maximum(a: Term, b: Term | Number) -> Term:
    """The larger of two."""
    return a.apply(Fn.MAX, b)


def minimum(a: Term, b: Term | Number) -> Term:
    """The smaller of two."""
    return a.apply(Fn.MIN, b)


def exp(x: Term) -> Term:
    """The exponential."""
    return x.apply(Fn.EXP)


def expm1(x: Term) -> Term:
    """The exponential less 1, exact near 0."""
    return x.apply(Fn.EXPM1)


def log(x: Term) -> Term:
    """The natural logarithm."""
    return x.apply(Fn.LOG)


def log1p(x: Term) -> Term:
    """The logarithm of 1 + x, exact near 0: what 1 + x rounds away is put back as a factor."""
    more = 1 + x
    exact = log(more) * (x / (more - 1))
    return where(more.equals(1), x, where(x.equals(math.inf), x, exact))


def tanh(x: Term) -> Term:
    """The hyperbolic tangent."""
    return x.apply(Fn.TANH)


def erf(x: Term) -> Term:
    """The error function, by Cody's rational approximations (Math. Comp. 23, 1969)."""
    square, far = x * x, minimum(abs(x), 6)
    near = x * (polynomial(square, *_NEAR_ABOVE) / polynomial(square, *_NEAR_BELOW))
    tail = exp(-(far * far)) * (polynomial(far, *_FAR_ABOVE) / polynomial(far, *_FAR_BELOW))
    return where(abs(x) < 0.5, near, where(x < 0, tail - 1, 1 - tail))


def polynomial(x: Term, *coefficients: float) -> Term:
    """Coefficients from the highest power on, by Horner's rule."""
    first, *rest = (x.constant(number) for number in coefficients)
    return reduce(lambda total, number: total * x + number, rest, first)


_NEAR_ABOVE = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_NEAR_BELOW = (
    1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
    2.84423683343917062e3,
)  # fmt: skip
_FAR_ABOVE = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_FAR_BELOW = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
    1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
    1.23033935480374942e3,
)  # fmt: skip
