"""Reductions: along the axis of a value, and over examples, with which a kernel ends."""

from hardstep.evaluation.fused.expressions import Expr, Fn, Kind, Reduction, Unfusable
from hardstep.evaluation.fused.translate import Closing, Translator
from hardstep.evaluation.trace.nodes import Node


def read_along(t: Translator, node: Node, index: int, dim: int) -> Expr:
    """The operand's expression, if the operation runs along its axis."""
    found, ndim = t.dense(index), t.base(index).dim()
    if found.axis is None or found.axis != dim % ndim - ndim or found.expr.domain is None:
        raise Unfusable(f"{node.name} along an axis that is not followed")
    return found.expr


def close_difference(t: Translator, out: int, new: Expr, old: Expr, count: float) -> None:
    """The same of what an example is worth now and was worth before, in double precision."""
    close_sum(t, out, t.g.apply(Fn.SUB, t.g.cast(new, Kind.F64), t.g.cast(old, Kind.F64)), count)


def close_sum(t: Translator, out: int, difference: Expr, count: float) -> None:
    """A sum over examples of what an example adds to the base, divided by a count."""
    if difference.domain is not None:
        difference = t.g.reduce(Reduction.TOTAL, difference)
    t.program.closings.append(Closing(out, difference, count))
    t.closed.add(out)
