"""Softmax and its logarithm."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hardstep.evaluation.events.shares import follow_softmax
from hardstep.evaluation.fused.expressions import Expr, Fn, Reduction, Unfusable
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.stacks import find_stack, keep_stack, read_part, wrap
from hardstep.evaluation.fused.sums import read_along
from hardstep.evaluation.fused.translate import Changed, Translator
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.along import call_along
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.examples import along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

# From values less their maximum, and the sum of their exponentials.
Finish = Callable[[Graph, Expr, Expr], Expr]


def _divide(g: Graph, shifted: Expr, total: Expr) -> Expr:
    return g.apply(Fn.DIV, g.apply(Fn.EXP, shifted), total)


def _subtract(g: Graph, shifted: Expr, total: Expr) -> Expr:
    return g.apply(Fn.SUB, shifted, g.apply(Fn.LOG, total))


def _build(g: Graph, value: Expr, finish: Finish) -> Expr:
    """Along the expression's axis."""
    shifted = g.apply(Fn.SUB, value, g.reduce(Reduction.MAX, value))
    return finish(g, shifted, g.reduce(Reduction.TOTAL, g.apply(Fn.EXP, shifted)))


def _lower(t: Translator, node: Node, finish: Finish) -> None:
    index, out = node.inputs[0], node.outputs[0]
    value = read_along(t, node, index, node.args[1])
    t.values[out] = Changed(_build(t.g, value, finish), t.changed(index).axis)


def _lower_stack(t: Translator, node: Node, finish: Finish) -> None:
    """Softmax along the units of every part."""
    stack, ndim = find_stack(t, node), t.base(node.inputs[0]).dim()
    if ndim != 3 or stack.axis == 2 or node.args[1] % ndim != 2:
        raise Unfusable(f"{node.name} of a stack other than along its last axis")

    def normalize(number: int) -> Changed:
        return wrap(_build(t.g, read_part(t, stack, number, False), finish), False)

    parts = [part and normalize(number) for number, part in enumerate(stack.parts)]
    keep_stack(t, node.outputs[0], stack.axis, parts)


def _build_rows(b: Builder, node: Node, finish: Finish) -> list[Expr]:
    index = node.inputs[0]
    b.check_source(index)
    b.check_along(node, index)
    return [_build(b.graph, b.operand(index, index), finish)]


def _build_safe_rows(b: Builder, node: Node) -> list[Expr]:
    """Rows that are masked altogether become zeros."""
    (result,) = _build_rows(b, node, _divide)
    g, index = b.graph, node.inputs[0]
    best = g.reduce(Reduction.MAX, b.operand(index, index))
    masked = g.apply(Fn.EQ, best, g.constant(-math.inf, best.kind))
    return [g.select(masked, g.constant(0.0, result.kind), result)]


def _softmax(name: str, finish: Finish) -> Operator:
    follow = partial(follow_softmax, logarithm=finish is _subtract)
    return Operator(
        name,
        column=carry_beside,
        examples=run_apart(along_dims()),
        apart=call_along,
        rows=partial(_build_rows, finish=finish),
        lanes=partial(_lower, finish=finish),
        stack=partial(_lower_stack, finish=finish),
        events=follow,
    )


OPERATORS = (
    _softmax("_softmax", _divide),
    _softmax("_log_softmax", _subtract),
    # Of attention: rows that are masked altogether become zeros, which only passes know.
    replace(
        _softmax("_safe_softmax", _divide),
        rows=_build_safe_rows,
        lanes=None,
        stack=None,
        events=None,
    ),
)
