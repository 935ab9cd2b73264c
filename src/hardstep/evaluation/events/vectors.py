"""Numbers per channel: batch norm with fixed statistics, and changed vectors of parameters."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from hardstep.evaluation.events.groups import Group
from hardstep.evaluation.events.layouts import Layout, pad, rows_of_pixels
from hardstep.evaluation.events.planner import Planner, Value
from hardstep.evaluation.events.program import (
    Lookup,
    PerTile,
    Slot,
    Spread,
    Table,
    Word,
    slot_words,
)
from hardstep.evaluation.events.stages import write_enter_vector
from hardstep.evaluation.fused.expressions import KINDS, Access, Expr, Fn, Unfusable
from hardstep.evaluation.trace.record import Node, Ref

Vector = Callable[[Lookup], Tensor]  # a number per channel


def follow_batch_norm(planner: Planner, node: Node) -> None:
    """A scale and a shift per channel, which do not depend on the batch."""
    source, weight, bias, mean, variance, training = node.args[:6]
    eps: float = node.args[7]
    changed = set(node.inputs) & (planner.values.keys() | planner.vectors)
    own = {part.index for part in (source, weight, bias) if isinstance(part, Ref)}
    if training or not changed <= own:
        raise Unfusable("batch norm with the statistics of the batch")

    def scale(values: Lookup) -> Tensor:
        inverse = (values(variance.index) + eps).rsqrt()
        return inverse * values(weight.index) if isinstance(weight, Ref) else inverse

    def shift(values: Lookup) -> Tensor:
        moved = -values(mean.index) * scale(values)
        return values(bias.index) + moved if isinstance(bias, Ref) else moved

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
