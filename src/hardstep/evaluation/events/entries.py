"""Where a changed filter enters: one new channel of what a convolution returns."""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Shape, plain_order, planes_of_channels, window_order
from hardstep.evaluation.events.maps import Geometry, count, find_sides, find_taps
from hardstep.evaluation.events.planner import Planner, Value
from hardstep.evaluation.events.program import Entry, PerTile, Word, slot_words
from hardstep.evaluation.events.stages import write_enter
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.translate_elementwise import BUILD
from hardstep.evaluation.ops.columns import parameter_rule
from hardstep.evaluation.trace.record import Node


def follow_parameters(planner: Planner, node: Node) -> None:
    """What becomes of changed weights: a channel of pictures, or other weights."""
    changes = parameter_rule(node, planner.weights, planner.base)
    if node.name == "convolution":
        out = planner.base(node.outputs[0])
        if changes is None or changes[0].axis != 1 or out.dim() < 3:
            raise Unfusable("the first changed value is not a channel of a picture")
        _enter(planner, node, out)
        return
    if changes is None or node.name in ("mm", "addmm"):
        raise Unfusable(f"{node.name} of a parameter")
    planner.weights.update(zip(node.outputs, changes, strict=True))
    planner.program.before.append(node)


def _enter(planner: Planner, node: Node, out: Tensor) -> None:
    planner.start(out.shape[0])
    order, length = _find_order(planner, node.outputs[0], tuple(out.shape[2:]))
    layout = planes_of_channels(tuple(out.shape[1:]), order, length)
    slot = planner.new_slot(node.outputs[0], layout, 0)
    number, kernel = len(planner.program.entries), planner.base(node.args[1].index)
    taps = _find_taps(node, kernel, planner.base(node.args[0].index), out, order, length)
    planner.program.entries.append(Entry(node, slot, order, length, taps))
    words: list[Word] = [*slot_words(slot), PerTile(("column", number)), PerTile(("units",))]
    words += [PerTile(("number",)), length]
    planner.stage("enter", partial(write_enter, kind=slot.kind), words, 0, [slot])
    planner.values[node.outputs[0]] = Value(slot, layout)


def _find_taps(
    node: Node, kernel: Tensor, pictures: Tensor, out: Tensor, order: Tensor, length: int
) -> Tensor:
    """The pixel that each tap of a filter reads for each place of a line."""
    stride, padding, dilation = map(tuple, node.args[3:6])
    pixels, sides = tuple(pictures.shape[2:]), tuple(kernel.shape[2:])
    found = find_taps(pixels, tuple(out.shape[2:]), Geometry(sides, stride, padding, dilation))
    taps = torch.full((count(sides), length), count(pixels))
    taps[found.tap, order.flatten()[found.target]] = found.source
    return taps


def _find_order(planner: Planner, index: int, pixels: Shape) -> tuple[Tensor, int]:
    """Pixels in the order of the first maximum over windows that reads them."""
    reached, lanes = {index}, planner.program.lanes
    for node in planner.nodes:
        if reached.isdisjoint(node.inputs):
            continue
        sides = find_sides(node, planner.base)
        if sides is not None and planner.base(node.inputs[0]).shape[2:] == pixels:
            return window_order(pixels, sides, lanes)
        if node.name in BUILD and planner.base(node.outputs[0]).shape[2:] == pixels:
            reached.update(node.outputs)
    return plain_order(pixels, lanes)
