"""Where a changed filter enters: one new channel of what a convolution returns."""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.filters import write_filter
from hardstep.evaluation.events.layouts import Shape, plain_order, planes_of_channels, window_order
from hardstep.evaluation.events.maps import Geometry, count, find_taps
from hardstep.evaluation.events.planner import Planner, Value
from hardstep.evaluation.events.program import Entry, PerTile, Stride, Word, slot_words
from hardstep.evaluation.events.stages import write_enter
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.incremental.columns import carry_parameters
from hardstep.evaluation.trace.nodes import Node


def follow_parameters(planner: Planner, node: Node) -> None:
    """What becomes of changed weights: numbers of the examples, or other weights."""
    known = planner.operators[node.name]
    if known.events_entry is not None:
        known.events_entry(planner, node)
        return
    changes = carry_parameters(node, planner.weights, planner.base, planner.operators)
    if changes is None or known.is_product:
        raise Unfusable(f"{node.name} of a parameter")
    planner.weights.update(zip(node.outputs, changes, strict=True))
    planner.program.before.append(node)


def enter_channel(planner: Planner, node: Node) -> None:
    """A changed filter or its bias: one new channel of what a convolution returns."""
    changes = carry_parameters(node, planner.weights, planner.base, planner.operators)
    out = planner.base(node.outputs[0])
    if changes is None or changes[0].axis != 1 or out.dim() < 3:
        raise Unfusable("the first changed value is not a channel of a picture")
    planner.start(out.shape[0])
    order, length = _find_order(planner, node.outputs[0], tuple(out.shape[2:]))
    layout = planes_of_channels(tuple(out.shape[1:]), order, length)
    slot = planner.new_slot(node.outputs[0], layout, 0)
    number, kernel = len(planner.program.entries), planner.base(node.args[1].index)
    pictures = planner.base(node.args[0].index)
    taps = _find_taps(node, kernel, pictures, out, order, length)
    groups, pixels = node.args[8], count(tuple(pictures.shape[2:]))
    size = pictures.shape[0] * pictures.shape[1] * taps.numel()
    channels = pictures.shape[1] // groups
    entry = Entry(node, slot, order, length, taps, channels, pixels, size)
    planner.program.entries.append(entry)
    words: list[Word] = [*slot_words(slot), PerTile(("column", number)), PerTile(("units",))]
    words.append(PerTile(("number",)))
    if entry.has_patches:
        lines = entry.channels * len(taps) + 1
        words += [lines, entry.patches, Stride(entry.patches)]
        words += [len(kernel) // groups, lines * length]
        detail = length // planner.program.lanes, groups > 1
        write = partial(write_filter, kind=slot.kind, vectors=detail[0], is_grouped=detail[1])
        planner.joint_stage("filter", write, words, 0, [slot], detail)
    else:
        write_line = partial(write_enter, kind=slot.kind)
        planner.stage("enter", write_line, [*words, length], 0, [slot])
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
        known = planner.operators[node.name]
        sides = known.sides(node, planner.base) if known.sides else None
        if sides is not None and planner.base(node.inputs[0]).shape[2:] == pixels:
            return window_order(pixels, sides, lanes)
        followed = known.is_elementwise and known.events is not None
        if followed and planner.base(node.outputs[0]).shape[2:] == pixels:
            reached.update(node.outputs)
    return plain_order(pixels, lanes)
