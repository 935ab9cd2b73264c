"""Normalization by batch, layer or group, and changed vectors of its parameters."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.events.batches import normalize_by_batch
from hardstep.evaluation.events.groups import Group
from hardstep.evaluation.events.layouts import Layout, pad, rows_of_pixels
from hardstep.evaluation.events.planner import Planner, Value
from hardstep.evaluation.events.program import (
    Lookup,
    PerTile,
    Slot,
    Spread,
    Table,
    Vector,
    Word,
    slot_words,
)
from hardstep.evaluation.events.stages import write_enter_vector
from hardstep.evaluation.fused.expressions import KINDS, Access, Expr, Fn, Reduction, Unfusable
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.along import call_layer_norm
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.examples import Env, always, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node, Ref


def _follow_batch_norm(planner: Planner, node: Node) -> None:
    """A scale and a shift per channel; with the batch's own statistics these change as well."""
    source, weight, bias, mean, variance, training = node.args[:6]
    eps: float = node.args[7]
    changed = set(node.inputs) & (planner.values.keys() | planner.vectors)
    own = {part.index for part in (source, weight, bias) if isinstance(part, Ref)}
    if not changed <= own or _reads(planner, set(node.outputs[1:])):
        raise Unfusable("batch norm whose statistics are changed or read otherwise")

    def gain(values: Lookup) -> Tensor:
        return values(weight.index) if isinstance(weight, Ref) else _channels(values, node, 1.0)

    def offset(values: Lookup) -> Tensor:
        return values(bias.index) if isinstance(bias, Ref) else _channels(values, node, 0.0)

    if training and source.index in planner.values:
        if changed & planner.vectors:
            raise Unfusable("batch norm whose parameters and statistics change")
        normalize_by_batch(planner, node, source.index, gain, offset, eps)
        return
    center = node.outputs[1] if training else mean.index

    def scale(values: Lookup) -> Tensor:
        if training:
            return values(node.outputs[2]) * gain(values)
        return (values(variance.index) + eps).rsqrt() * gain(values)

    def shift(values: Lookup) -> Tensor:
        return offset(values) - values(center) * scale(values)

    layout = _find_layout(planner, source.index)
    entering = bool(changed & planner.vectors)
    named = (("scale", scale), ("shift", shift))
    slots = [_enter(planner, node, *one, layout) for one in named] if entering else []
    operands = [Value(slot, layout) for slot in slots]
    operands += [planner.values[source.index]] if source.index in planner.values else []
    group = planner.group(operands, layout)
    group.nodes += 2
    factor, added = (
        [group.read_slot(slot) for slot in slots]
        if entering
        else [_read(planner, group, node, *one, layout) for one in named]
    )
    if source.index in planner.values:
        old = planner.read_changed(group, planner.values[source.index])
    else:
        old = planner.read_unchanged(group, source.index, planner.base(source.index), layout)
    expr = group.graph.apply(Fn.ADD, group.graph.apply(Fn.MUL, old, factor), added)
    planner.hold(node, expr, group, layout)


def _reads(planner: Planner, values: set[int]) -> bool:
    return any(not values.isdisjoint(node.inputs) for node in planner.nodes)


def _channels(values: Lookup, node: Node, number: float) -> Tensor:
    """The same number for every channel."""
    return torch.full_like(values(node.outputs[1]), number)


def _find_layout(planner: Planner, index: int) -> Layout:
    if index in planner.values:
        return planner.values[index].layout
    shape = planner.base(index).shape
    planner.start(shape[0])
    return rows_of_pixels(tuple(shape[1:]), planner.program.lanes)


def _table(name: str, node: Node, make: Vector, layout: Layout) -> Table:
    """A number per channel at every pixel."""
    shape = layout.places.shape

    def spread(values: Lookup) -> Tensor:
        line = make(values).reshape(1, -1, *[1] * (len(shape) - 1))
        return layout.lay_out(line.expand(1, *shape))

    return Table((name, node.outputs[0], layout.key), spread)


def _read(
    planner: Planner, group: Group, node: Node, name: str, make: Vector, layout: Layout
) -> Expr:
    """Numbers per channel that no candidate changes."""
    kind = planner.kind(node.outputs[0])
    return group.read_table(Access.LANE, kind, _table(name, node, make, layout))


def _enter(planner: Planner, node: Node, name: str, make: Vector, layout: Layout) -> Slot:
    """Numbers per channel that candidates change."""
    lanes = planner.program.lanes
    row = pad(layout.places.shape[0], lanes)
    if layout.key != rows_of_pixels(tuple(layout.places.shape), lanes).key:
        raise Unfusable("a changed vector meets a changed value")
    kind = KINDS[planner.base(node.outputs[0]).dtype]
    slot = planner.keep(Slot(kind, layout, 0, _table(name, node, make, layout)))
    words: list[Word] = [*slot_words(slot), PerTile(("spread", len(planner.program.spreads)))]
    words += [row // lanes, layout.size // row]
    planner.program.spreads.append(Spread(make, row))
    planner.stage("vector", partial(write_enter_vector, kind=kind), words, 0, [slot])
    return slot


# -- examples, and whole values ----------------------------------------------------------------


def _has_fixed_statistics(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    return node.args[5] is False


def _normalizes_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    return len(node.args[1]) < base(node.inputs[0]).dim()


def _leave_statistics_alone(args: list[Any]) -> list[Any]:
    """With the statistics of the batch, the running ones are only written."""
    return [*args[:3], None, None, *args[5:]] if args[5] else args


def _count_examples(args: list[Any], num: int) -> list[Any]:
    return [*args[:3], num, *args[4:]]


def _build_rows(b: Builder, node: Node) -> list[Expr]:
    """Normalization of every row."""
    source, sizes, weight, bias, eps = node.args[:5]
    index, g = source.index, b.graph
    b.check_source(index)
    if len(sizes) != 1:
        raise Unfusable(f"{node.name} of several dimensions")
    value = b.operand(index, index)
    kind = value.kind

    def mean(expr: Expr) -> Expr:
        total = g.reduce(Reduction.TOTAL, expr)
        return g.apply(Fn.MUL, total, g.constant(1 / b.size, kind))

    center = mean(value)
    apart = g.apply(Fn.SUB, value, center)
    spread = g.apply(Fn.ADD, mean(g.apply(Fn.MUL, apart, apart)), g.constant(eps, kind))
    scale = g.apply(Fn.DIV, g.constant(1.0, kind), g.apply(Fn.SQRT, spread))
    result = g.apply(Fn.MUL, apart, scale)
    for function, ref in ((Fn.MUL, weight), (Fn.ADD, bias)):
        if ref is not None:
            result = g.apply(function, result, b.operand(ref.index, index))
    return [result, center, scale]


OPERATORS = (
    Operator(
        "native_batch_norm",
        examples=run_apart(_has_fixed_statistics, table=0),
        whole=_leave_statistics_alone,
        events=_follow_batch_norm,
        of_pictures=True,
        enters_events=True,
    ),
    Operator(
        "native_layer_norm",
        examples=run_apart(_normalizes_within_examples, table=0),
        apart=call_layer_norm,
        rows=_build_rows,
    ),
    Operator("native_group_norm", examples=run_apart(always, table=0, resize=_count_examples)),
)
