"""Reductions over an axis as LLVM assembly: sums, extremes, where they stand, a chosen number."""

import math

from hardstep.evaluation.fused.emit_expressions import emit_extreme
from hardstep.evaluation.fused.emit_vectors import Value, Vectors
from hardstep.evaluation.fused.expressions import Fn, Kind, Pick, Reduce, Reduced, Reduction


def start_reduction(v: Vectors, expr: Reduced) -> tuple[Value, ...]:
    """Variables of a reduction at their first values."""
    kind = expr.args[0].kind
    starts: list[tuple[Kind, float]] = [(kind, 0)]
    if isinstance(expr, Reduce) and expr.reduction is not Reduction.TOTAL:
        largest = expr.reduction in (Reduction.MAX, Reduction.ARGMAX)
        starts = [(kind, -math.inf if largest else math.inf)]
        if expr.reduction in (Reduction.ARGMAX, Reduction.ARGMIN):
            starts.append((Kind.I64, 0))
    variables = []
    for kind, start in starts:
        variable = v.variable(kind)
        v.line(f"store {v.type(kind)} {v.constant(start, kind)}, ptr {variable}")
        variables.append(variable)
    return tuple(variables)


def reduce_by(
    v: Vectors, expr: Reduced, variables: tuple[Value, ...], new: Value, j: Value,
    chosen: Value | None,
) -> None:  # fmt: skip
    """Take in the value at index j; `chosen` is the index that a choice keeps, lane by lane."""
    kind = expr.args[0].kind
    old = v.let(f"load {v.type(kind)}, ptr {variables[0]}")
    match expr:
        case Pick():
            assert chosen is not None
            here = v.compare("icmp eq", Kind.I64, chosen, v.splat(j, Kind.I64))
            result = v.select(here, kind, new, old)
        case Reduce(reduction=Reduction.TOTAL):
            result = v.binary("fadd", kind, old, new)
        case Reduce(reduction=Reduction.MAX):
            result = emit_extreme(v, Fn.MAX, kind, new, old)
        case Reduce(reduction=Reduction.MIN):
            result = emit_extreme(v, Fn.MIN, kind, new, old)
        case _:
            better = _find_better(v, expr, new, old)
            place = v.let(f"load {v.type(Kind.I64)}, ptr {variables[1]}")
            place = v.select(better, Kind.I64, v.splat(j, Kind.I64), place)
            v.line(f"store {v.type(Kind.I64)} {place}, ptr {variables[1]}")
            result = v.select(better, kind, new, old)
    v.line(f"store {v.type(kind)} {result}, ptr {variables[0]}")


def _find_better(v: Vectors, expr: Reduce, new: Value, old: Value) -> Value:
    """Where a value beats the best one so far; the first that is not a number beats all."""
    kind = expr.args[0].kind
    predicate = "ogt" if expr.reduction is Reduction.ARGMAX else "olt"
    better = v.compare(f"fcmp {predicate}", kind, new, old)
    nan = v.compare("fcmp uno", kind, new, new)
    first = v.binary("and", Kind.I1, nan, v.compare("fcmp ord", kind, old, old))
    return v.binary("or", Kind.I1, better, first)
