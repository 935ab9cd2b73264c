"""Maxima over windows of changed pictures."""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import (
    Layout,
    plain_order,
    planes_of_channels,
    rows_of_pixels,
)
from hardstep.evaluation.events.maps import find_geometry, find_taps, list_by
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Room, Word, slot_words
from hardstep.evaluation.events.stages import write_pool
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.trace.record import Node


def follow_pool(planner: Planner, node: Node) -> None:
    """Windows that a touched vector lies in are looked at again."""
    index = node.inputs[0]
    used = {i for other in planner.nodes for i in other.inputs}
    if node.outputs[1] in used:
        raise Unfusable("max pooling whose indices are used")
    slot, layout = planner.slot(index)
    out = planner.base(node.outputs[0])
    if not slot.kind.is_float or layout.axis != 0 or out.dim() != 4:
        raise Unfusable("max pooling of something else than pictures")
    lanes = planner.program.lanes
    pixels, shape = tuple(layout.places.shape[1:]), tuple(out.shape[1:])
    taps = find_taps(pixels, tuple(out.shape[2:]), find_geometry(node, 2))
    rows = rows_of_pixels(shape, lanes)
    planes = planes_of_channels(shape, *plain_order(shape[1:], lanes))
    for named in (rows, planes):
        members = _find_members(layout, named, taps.source, taps.target, taps.tap, lanes)
        if members is not None:
            break
    else:
        raise Unfusable("max pooling across lanes")
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    inner, outer = members
    by_inner, by_outer = inner.argsort(stable=True), outer.argsort(stable=True)
    owner = object()
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [Fixed(list_by(inner[by_inner], slot.size // lanes))]
    words += [Fixed(outer[by_inner].int().contiguous())]
    words += [Fixed(list_by(outer[by_outer], target.size // lanes))]
    words += [Fixed(inner[by_outer].int().contiguous())]
    words += [Room(part, owner) for part in ("mark", "work")]
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
    unique = torch.unique(pairs, dim=1)
    heads = torch.unique(unique[:2], dim=1)
    if heads.shape[1] != unique.shape[1]:
        return None
    # Lanes that name no number hold zeros, which could win: they are read by nobody.
    return unique[2], unique[0]
