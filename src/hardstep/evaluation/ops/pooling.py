"""Pooling: maxima and means over windows of pictures."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import (
    Layout,
    plain_order,
    planes_of_channels,
    rows_of_pixels,
)
from hardstep.evaluation.events.linear import MOST_ENTRIES, scatter_events
from hardstep.evaluation.events.maps import (
    Geometry,
    Shape,
    Taps,
    count,
    find_taps,
    flatten,
    list_by,
)
from hardstep.evaluation.events.planner import Follow, Planner, behind
from hardstep.evaluation.events.program import Fixed, Lookup, Room, Table, Word, slot_words
from hardstep.evaluation.events.stages import write_pool
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.incremental.along import find_alone
from hardstep.evaluation.incremental.columns import Column, Columns
from hardstep.evaluation.incremental.examples import always, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node

Windows = Callable[[Node, Shape, Shape], Taps]


def _follow_maximum(planner: Planner, node: Node, dims: int, find_windows: Windows) -> None:
    """Windows that a touched vector lies in are looked at again."""
    index = node.inputs[0]
    used = {i for other in planner.nodes for i in other.inputs}
    if node.outputs[1] in used:
        raise Unfusable("max pooling whose indices are used")
    slot, layout = planner.slot(index)
    out = planner.base(node.outputs[0])
    if not slot.kind.is_float or layout.axis != 0 or out.dim() != dims + 2:
        raise Unfusable("max pooling of something else than pictures")
    lanes = planner.program.lanes
    pixels, shape = tuple(layout.places.shape[1:]), tuple(out.shape[1:])
    taps = find_windows(node, pixels, tuple(out.shape[2:]))
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


def _find_geometry(node: Node, dims: int) -> Geometry:
    """The windows of a pooling node."""

    def per_dim(place: int, default: Shape) -> Shape:
        given = node.args[place] if len(node.args) > place else ()
        return tuple(given if len(given) == dims else list(given) * dims) or default

    window = per_dim(1, ())
    ones = (1,) * dims
    return Geometry(window, per_dim(2, window), per_dim(3, (0,) * dims), per_dim(4, ones))


def _find_windows(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Which pixels the windows of a maximum hold."""
    return find_taps(pixels, out, _find_geometry(node, len(out)))


def _share_pixels(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Windows that share the pixels out among a given number of them; they may overlap."""
    sides = []  # offset in the window, pixel and window, along each dimension
    for size, num in zip(pixels, out, strict=True):
        bounds = [(window * size // num, -(-(window + 1) * size // num)) for window in range(num)]
        pairs = [(at - a, at, n) for n, (a, b) in enumerate(bounds) for at in range(a, b)]
        sides.append(torch.tensor(pairs))
    chosen = torch.cartesian_prod(*[torch.arange(len(side)) for side in sides])
    points = torch.stack([side[at] for side, at in zip(sides, chosen.T, strict=True)], dim=1)
    offset, source, target = points.unbind(2)
    taps = Taps(flatten(source, pixels), flatten(target, out), flatten(offset, pixels))
    order = taps.source.argsort(stable=True)
    return Taps(*(part[order] for part in taps))


def _find_sides(node: Node, base: Lookup, dims: int) -> Shape | None:
    """The sides of a maximum's windows that stand side by side, or nothing."""
    if base(node.inputs[0]).dim() != dims + 2:
        return None
    shape = _find_geometry(node, dims)
    plain = shape.stride == shape.kernel and not any(shape.padding) and set(shape.dilation) == {1}
    return shape.kernel if plain else None


def _find_shares(node: Node, base: Lookup, dims: int) -> Shape | None:
    """The same of windows that share the pixels out."""
    value, out = base(node.inputs[0]), base(node.outputs[0])
    pairs = list(zip(value.shape[-dims:], out.shape[-dims:], strict=True))
    if value.dim() != dims + 2 or any(size % num for size, num in pairs):
        return None
    return tuple(size // num for size, num in pairs)


def _follow_average(planner: Planner, node: Node) -> None:
    """Means over windows of each picture; the weights are found by trying every pixel."""
    (index,) = node.inputs
    slot, layout = planner.slot(index)
    value, out = planner.base(index), planner.base(node.outputs[0])
    pixels, results = tuple(value.shape[2:]), tuple(out.shape[2:])
    if not slot.kind.is_float or layout.axis != 0 or value.dim() != out.dim() or not pixels:
        raise Unfusable(f"{node.name} of something else than pictures")
    if count(pixels) * count(results) > MOST_ENTRIES:
        raise Unfusable(f"{node.name} of large pictures")
    single = torch.eye(count(pixels), dtype=value.dtype).reshape(-1, 1, *pixels)
    matrix = node.func(single, *node.args[1:], **node.kwargs).reshape(count(pixels), -1)
    pixel, result = matrix.nonzero(as_tuple=True)
    named = rows_of_pixels(tuple(out.shape[1:]), planner.program.lanes)
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    channels = layout.places.shape[0]
    source = layout.places.reshape(channels, -1)[:, pixel].flatten()
    place = named.places.reshape(channels, -1)[:, result].flatten()
    order = source.argsort(stable=True)
    weights = matrix[pixel, result].repeat(channels)[order]
    table = Table(("average", node.outputs[0], layout.key), lambda _: weights)
    scatter_events(planner, slot, target, source[order], place[order], table)
    planner.put(node, target)


def _carry_column(
    node: Node, columns: Mapping[int, Column], base: Lookup, dims: int
) -> Columns | None:
    """Windows over the last axes; what stands in front of them is treated apart."""
    column = find_alone(node, columns)
    if column is None or column.axis >= base(node.inputs[0]).dim() - dims:
        return None
    result = node.func(column.slices, *node.args[1:], **node.kwargs)
    results = result if isinstance(result, tuple | list) else [result]
    return tuple(Column(column.axis, column.unit, slices) for slices in results)


def _pooling(name: str, dims: int, events: Follow | None = None) -> Operator:
    """Windows over so many last axes."""
    column = partial(_carry_column, dims=dims)
    return Operator(name, column=column, examples=run_apart(always), events=events)


def _maximum(
    name: str, dims: int, windows: Windows, sides: Callable[[Node, Lookup, int], Shape | None]
) -> Operator:
    follow = partial(_follow_maximum, dims=dims, find_windows=windows)
    known = _pooling(name, dims, follow)
    return replace(known, sides=lambda node, base: sides(node, base, dims))


OPERATORS = (
    _maximum("max_pool2d_with_indices", 2, _find_windows, _find_sides),
    _maximum("max_pool3d_with_indices", 3, _find_windows, _find_sides),
    _maximum("adaptive_max_pool2d", 2, _share_pixels, _find_shares),
    _maximum("adaptive_max_pool3d", 3, _share_pixels, _find_shares),
    _pooling("avg_pool1d", 1, _follow_average),
    _pooling("avg_pool2d", 2, _follow_average),
    _pooling("avg_pool3d", 3, _follow_average),
    _pooling("_adaptive_avg_pool2d", 2, _follow_average),
    _pooling("_adaptive_avg_pool3d", 3, _follow_average),
)
