"""Maxima over windows of changed pictures."""

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import (
    Layout,
    Shape,
    pad,
    plain_order,
    planes_of_channels,
    rows_of_pixels,
)
from hardstep.evaluation.events.maps import Geometry, count, find_taps, list_by
from hardstep.evaluation.events.program import Fixed, Lookup, Room, Word, slot_words
from hardstep.evaluation.events.stages import write_pool
from hardstep.evaluation.fused.expressions import FLOATS, Unfusable
from hardstep.evaluation.trace.record import Node

if TYPE_CHECKING:
    from hardstep.evaluation.events.plan import Planner


def _shape(node: Node, dims: int) -> Geometry:
    def per_dim(place: int, default: Shape) -> Shape:
        given = node.args[place] if len(node.args) > place else ()
        return tuple(given if len(given) == dims else list(given) * dims) or default

    window = per_dim(1, ())
    ones = (1,) * dims
    return Geometry(window, per_dim(2, window), per_dim(3, (0,) * dims), per_dim(4, ones))


def find_sides(node: Node, base: Lookup) -> Shape | None:
    """The sides of a maximum's windows that stand side by side, or nothing."""
    if node.name != "max_pool2d_with_indices" or base(node.inputs[0]).dim() != 4:
        return None
    shape = _shape(node, 2)
    plain = shape.stride == shape.kernel and shape.padding == (0, 0) and shape.dilation == (1, 1)
    return shape.kernel if plain else None


def follow_pool(planner: "Planner", node: Node) -> None:
    """Windows that a touched vector lies in are looked at again."""
    index = node.inputs[0]
    used = {i for other in planner.nodes for i in other.inputs}
    if node.outputs[1] in used:
        raise Unfusable("max pooling whose indices are used")
    slot, layout = planner.slot(index)
    out = planner.base(node.outputs[0])
    if slot.kind not in FLOATS or layout.axis != 0 or out.dim() != 4:
        raise Unfusable("max pooling of something else than pictures")
    lanes = planner.program.lanes
    pixels, shape = tuple(layout.places.shape[1:]), tuple(out.shape[1:])
    taps = find_taps(pixels, tuple(out.shape[2:]), _shape(node, 2))
    for named in (rows_of_pixels(shape, lanes), planes_of_channels(shape, *plain_order(shape[1:], lanes))):
        members = _find_members(layout, named, taps.source, taps.target, taps.tap, lanes)
        if members is not None:
            break
    else:
        raise Unfusable("max pooling across lanes")
    target = planner.new_slot(node.outputs[0], named, slot.level + 1)
    inner, outer = members
    by_inner, by_outer = inner.argsort(stable=True), outer.argsort(stable=True)
    owner = object()
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [Fixed(list_by(inner[by_inner], slot.size // lanes))]
    words += [Fixed(outer[by_inner].int().contiguous())]
    words += [Fixed(list_by(outer[by_outer], target.size // lanes))]
    words += [Fixed(inner[by_outer].int().contiguous())]
    words += [Room(part, owner) for part in ("mark", "work", "count")]
    write = partial(write_pool, kind=slot.kind)
    work = target.size // lanes
    planner.stage("pool", write, words, target.level - 0.5, [slot, target], work)
    planner.put(node, target)


def _find_members(
    old: Layout, new: Layout, source: Tensor, target: Tensor, tap: Tensor, lanes: int
) -> tuple[Tensor, Tensor] | None:
    """Pairs (vector of the picture, vector of the result), if lanes meet their like only."""
    channels = old.places.shape[0]
    inner = old.places.reshape(channels, -1)[:, source]
    outer = new.places.reshape(channels, -1)[:, target]
    if not torch.equal(inner % lanes, outer % lanes):
        return None
    # All lanes of a vector of the result must find their numbers in one vector per tap.
    pairs = torch.stack([outer // lanes, tap.expand(channels, -1), inner // lanes]).flatten(1)
    unique = pairs.unique(dim=1)
    heads = unique[:2].unique(dim=1)
    if heads.shape[1] != unique.shape[1]:
        return None
    # Lanes that name no number hold zeros, which could win: they are read by nobody.
    return unique[2], unique[0]


__all__ = ["count", "find_sides", "follow_pool", "pad"]
