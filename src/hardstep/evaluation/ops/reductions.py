"""Operators along a dimension: sums, extremes, softmax, sorting."""

from functools import partial

import torch

from hardstep.evaluation.events.layouts import Layout, pad
from hardstep.evaluation.events.linear import scatter_events
from hardstep.evaluation.events.maps import count
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Table
from hardstep.evaluation.fused.expressions import Unfusable
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
from hardstep.evaluation.trace.record import Node

_apart = run_apart(along_dims())


# -- sums and means ----------------------------------------------------------------------------


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


def _follow_sum(planner: Planner, node: Node, is_mean: bool) -> None:
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
    planner.put(node, target)


# -- entries -----------------------------------------------------------------------------------


def _sum(name: str, is_mean: bool) -> Operator:
    return Operator(
        name,
        column=carry_beside,
        examples=partial(_add_up, is_mean=is_mean),
        events=partial(_follow_sum, is_mean=is_mean),
    )


_OTHERS = """
    _softmax _log_softmax amax amin argmax argmin max min glu var std any all prod cumsum cumprod
    logsumexp sort topk norm linalg_vector_norm std_mean var_mean argsort count_nonzero
    aminmax
"""
OPERATORS = (
    _sum("sum", is_mean=False),
    _sum("mean", is_mean=True),
    *(Operator(name, column=carry_beside, examples=_apart) for name in _OTHERS.split()),
)
