"""Sums and means."""

from functools import partial

import torch

from hardstep.evaluation.events.layouts import Layout, pad
from hardstep.evaluation.events.linear import scatter_events
from hardstep.evaluation.events.maps import count
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Table
from hardstep.evaluation.events.zeros import Sums, Terms, restore_zeros
from hardstep.evaluation.fused.expressions import Expr, Fn, Kind, Reduction, Unfusable
from hardstep.evaluation.fused.stacks import (
    add_parts,
    find_reduced,
    find_stack,
    read_old,
    read_part,
    read_parts,
    wrap,
)
from hardstep.evaluation.fused.sums import close_difference, close_sum, read_along
from hardstep.evaluation.fused.translate import Changed, Translator, find_argument
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.closings import call_sum
from hardstep.evaluation.incremental.along import carry_beside, find_dims
from hardstep.evaluation.incremental.changes import Pairs, Stacked
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import (
    Env,
    Result,
    along_dims,
    gather_examples,
    run_apart,
)
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

_apart = run_apart(along_dims())

# -- examples ----------------------------------------------------------------------------------


def _add_up(node: Node, env: Env, base: Lookup, pairs: Pairs, is_mean: bool) -> Result:
    """Over axis 0 (and others): the base plus the difference of the changed examples."""
    index = node.inputs[0]
    value, result = base(index), base(node.outputs[0])
    dims = find_dims(node, base) or list(range(value.dim()))
    if 0 not in dims or not value.is_floating_point():
        return _apart(node, env, base, pairs)
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    new = gather_examples(index, env, base, pairs)
    inner = [d for d in dims if d != 0]
    difference = (new - value[pairs.example]).double()
    if inner:
        difference = difference.sum(dim=inner, keepdim=keep)
    total = difference.new_zeros(pairs.num_candidates, *difference.shape[1:])
    total.index_add_(0, pairs.candidate, difference)
    if keep:
        total = total.unsqueeze(1)
    divisor = value.numel() // result.numel() if is_mean else 1
    return (Stacked((result.double() + total / divisor).to(result.dtype)),)


# -- kernels -----------------------------------------------------------------------------------


def _lower(t: Translator, node: Node, is_mean: bool) -> None:
    """A sum or mean along the followed axis, or over the examples, which closes the chain."""
    index, out = node.inputs[0], node.outputs[0]
    ndim = t.base(index).dim()
    dims = find_argument(node, 1, "dim", None)
    dims = [d % ndim for d in dims] if dims else list(range(ndim))
    if node.kwargs.keys() - {"dtype"} or t.kind(index) != t.kind(out):
        raise Unfusable(f"{node.name} with another type")
    count = t.base(index).numel() // t.base(out).numel() if is_mean else 1
    if 0 in dims:
        if t.base(out).numel() != 1:
            raise Unfusable(f"{node.name} over examples, but not over everything")
        _close_value(t, index, out, count)
        return
    if len(dims) != 1 or t.kind(index) is Kind.I64:
        raise Unfusable(f"{node.name} over several axes")
    total = t.g.reduce(Reduction.TOTAL, read_along(t, node, index, dims[0]))
    if is_mean:
        total = t.g.apply(Fn.DIV, total, t.g.constant(count, total.kind))
    t.values[out] = Changed(total)


def _close_value(t: Translator, index: int, out: int, count: int) -> None:
    """Everything added up: the differences of the changed examples, in double precision."""
    found = t.dense(index)
    if not found.expr.kind.is_float:
        raise Unfusable("a sum of integers")
    ndim = t.base(index).dim()
    old = t.read_shared(index, ndim, found.axis, column=False)
    new = found.expr
    if ndim > 1 and found.axis is None and t.base(index).numel() != t.program.num_examples:
        raise Unfusable("a sum over an axis along which nothing varies")
    close_difference(t, out, new, old, count)


def _lower_stack(t: Translator, node: Node, is_mean: bool) -> None:
    """A sum or mean over the parts, or over everything."""
    out, dims = node.outputs[0], find_argument(node, 1, "dim", None)
    if node.kwargs.keys() - {"dtype"}:
        raise Unfusable(f"{node.name} of a stack with {', '.join(node.kwargs)}")
    if not dims or len(dims) == t.base(node.inputs[0]).dim():
        _close_stack(t, node, is_mean)
        return
    stack, kind = find_reduced(t, node, dims), t.kind(out)
    exprs, column = read_parts(t, stack)
    total = add_parts(t, [t.g.cast(expr, kind) for expr in exprs])
    if is_mean:
        total = t.g.apply(Fn.DIV, total, t.g.constant(len(exprs), kind))
    t.values[out] = wrap(total, column)


def _close_stack(t: Translator, node: Node, is_mean: bool) -> None:
    """Everything added up: the differences of the changed parts, in double precision."""
    stack, out, g = find_stack(t, node), node.outputs[0], t.g
    if t.kind(stack.whole) != t.kind(out) or not t.kind(out).is_float:
        raise Unfusable(f"{node.name} of a stack with another type")

    def gap(number: int) -> Expr:
        new, old = read_part(t, stack, number, False), read_old(t, stack, number, False)
        return g.apply(Fn.SUB, g.cast(new, Kind.F64), g.cast(old, Kind.F64))

    gaps = [gap(number) for number, part in enumerate(stack.parts) if part is not None]
    count = t.base(stack.whole).numel() if is_mean else 1
    close_sum(t, out, add_parts(t, gaps), count)


def _build_rows(b: Builder, node: Node, is_mean: bool) -> list[Expr]:
    """Along rows, or over all rows of an example."""
    index = node.inputs[0]
    b.check_source(index)
    value, dims = b.operand(index, index), b.find_own_dims(node, index)
    if node.kwargs.get("dtype") is not None or not value.kind.is_float:
        raise Unfusable(f"{node.name} with another type")
    last = b.last_dim(index)
    if dims not in ([last], list(range(last))) or value.domain is None:
        raise Unfusable(f"{node.name} over some rows")
    count = b.size if dims == [last] else b.rows
    if is_mean:
        value = b.graph.apply(Fn.MUL, value, b.graph.constant(1 / count, value.kind))
    if dims == [last]:
        return [b.graph.reduce(Reduction.TOTAL, value)]
    b.summed = True
    return [value]


# -- events ------------------------------------------------------------------------------------


def _follow(planner: Planner, node: Node, is_mean: bool) -> None:
    """Events through a sum or mean over anything but examples."""
    (index,) = node.inputs
    value, result = planner.base(index), planner.base(node.outputs[0])
    slot, layout = planner.slot(index)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if not dims or not slot.kind.is_float or value.dtype != result.dtype:
        raise Unfusable(f"{node.name} over examples")
    axes = sorted({dim % value.dim() for dim in (dims if isinstance(dims, list) else [dims])})
    if layout.axis in axes:
        raise Unfusable(f"{node.name} over examples")
    keep = [1 if dim in axes else size for dim, size in enumerate(value.shape)]
    del keep[layout.axis]
    num = count(tuple(keep))
    lanes = planner.program.lanes
    wide = torch.arange(num).reshape(keep)
    axis = layout.axis - sum(dim < layout.axis for dim in axes) * (result.dim() < value.dim())
    shape = [*result.shape[:axis], *result.shape[axis + 1 :]]
    named = Layout(wide.reshape(shape), pad(num, lanes), axis)
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    source, place = layout.places.flatten(), wide.expand(layout.places.shape).flatten()
    order = source.argsort(stable=True)
    factor = num * 1.0 / layout.places.numel() if is_mean else 1.0
    weights = Table(
        ("factor", factor, len(source), result.dtype),
        lambda _: torch.full((len(source),), factor, dtype=result.dtype),
    )
    scatter_events(planner, slot, target, source[order], place[order], weights)
    terms = Terms(source, place, named.places)
    restore_zeros(planner, slot, target, Sums(index, node.outputs[0]), terms)
    planner.put(node, target)


# -- entries -----------------------------------------------------------------------------------


def _sum(name: str, is_mean: bool) -> Operator:
    return Operator(
        name,
        column=carry_beside,
        examples=partial(_add_up, is_mean=is_mean),
        apart=call_sum(is_mean),
        rows=partial(_build_rows, is_mean=is_mean),
        lanes=partial(_lower, is_mean=is_mean),
        stack=partial(_lower_stack, is_mean=is_mean),
        events=partial(_follow, is_mean=is_mean),
    )


OPERATORS = (_sum("sum", is_mean=False), _sum("mean", is_mean=True))
