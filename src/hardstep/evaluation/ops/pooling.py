"""Pooling: maxima and means over windows of pictures."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import (
    Layout,
    plain_order,
    planes_of_channels,
    rows_of_pixels,
)
from hardstep.evaluation.events.maps import (
    Geometry,
    Shape,
    Taps,
    count,
    find_length,
    find_taps,
    flatten,
    list_by,
)
from hardstep.evaluation.events.moves import align
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Lookup, Room, Slot, Table, Word, slot_words
from hardstep.evaluation.events.stages import write_pool
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.incremental.along import find_alone
from hardstep.evaluation.incremental.columns import Column, Columns
from hardstep.evaluation.incremental.examples import always, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

Windows = Callable[[Node, Shape, Shape], Taps]
Sizes = Callable[[Node, Taps, Shape, Shape], list[Tensor]]
FindSides = Callable[[Node, Lookup, int], Shape | None]


def _follow_windows(
    planner: Planner, node: Node, dims: int, find_windows: Windows, find_sizes: Sizes | None
) -> None:
    """Windows that a touched vector lies in are looked at again.

    Means too: what is left of a mean to which changes are added may be rounding, where the window
    holds zeros only, and a sign behind it shows.
    """
    used = {i for other in planner.nodes for i in other.inputs}
    if any(index in used for index in node.outputs[1:]):
        raise Unfusable("max pooling whose indices are used")
    layout, out = planner.values[node.inputs[0]].layout, planner.base(node.outputs[0])
    if layout.axis != 0 or out.dim() != dims + 2 or not planner.kind(node.inputs[0]).is_float:
        raise Unfusable(f"{node.name} of something else than pictures")
    lanes, shape = planner.program.lanes, tuple(out.shape[1:])
    pixels = tuple(layout.places.shape[1:])
    taps = find_windows(node, pixels, shape[1:])
    slot, named, inner, outer = _pair_members(planner, node.inputs[0], shape, taps)
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    by_inner, by_outer = inner.argsort(stable=True), outer.argsort(stable=True)
    owner = object()
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    starts = list_by(inner[by_inner], slot.size // lanes)
    member_starts = list_by(outer[by_outer], target.size // lanes)
    words += [Fixed(starts), Fixed(outer[by_inner].int().contiguous())]
    words += [Fixed(member_starts), Fixed(inner[by_outer].int().contiguous())]
    words += [Room(part, owner) for part in ("mark", "work")]
    sizes = find_sizes(node, taps, pixels, shape[1:]) if find_sizes else []
    words += [_lay_out_sizes(node, number, size, named) for number, size in enumerate(sizes)]
    each = (find_length(starts), find_length(member_starts))
    write = partial(write_pool, kind=slot.kind, each=each, divisions=len(sizes))
    work, detail = target.size // lanes, (each, len(sizes))
    planner.stage("pool", write, words, target.level - 0.5, [slot, target], work, detail)
    planner.put(node, target)


def _lay_out_sizes(node: Node, number: int, sizes: Tensor, named: Layout) -> Table:
    """What the sums of windows (*results) are divided by, where the means stand."""

    def make(values: Lookup) -> Tensor:
        dtype = values(node.outputs[0]).dtype
        whole = named.lay_out(sizes.to(dtype).expand(1, *named.places.shape))
        return torch.where(named.named, whole, 1)

    return Table(("sizes", number, node.outputs[0], named.key), make)


def _pair_members(
    planner: Planner, index: int, shape: Shape, taps: Taps
) -> tuple[Slot, Layout, Tensor, Tensor]:
    """The slot of a picture, the layout of its pooled one, and which vectors belong together."""
    lanes = planner.program.lanes
    rows = rows_of_pixels(shape, lanes)
    planes = planes_of_channels(shape, *plain_order(shape[1:], lanes))
    value = planner.values[index]
    for named in (rows, planes):
        members = _find_members(value.layout, named, taps.source, taps.target, taps.tap, lanes)
        if members is not None:
            return planner.hand_on(value), named, *members
    # Channels that are neighbors meet their like, whatever the windows are.
    moved = align(planner, value, rows_of_pixels(tuple(value.layout.places.shape), lanes))
    members = _find_members(moved.layout, rows, taps.source, taps.target, taps.tap, lanes)
    assert members is not None
    return planner.hand_on(moved), rows, *members


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


def _find_geometry(node: Node, dims: int, dilated: bool) -> Geometry:
    """The windows of a pooling node; those of maxima may be dilated."""

    def per_dim(place: int, default: Shape) -> Shape:
        given = node.args[place] if len(node.args) > place else ()
        return tuple(given if len(given) == dims else list(given) * dims) or default

    window, ones = per_dim(1, ()), (1,) * dims
    dilation = per_dim(4, ones) if dilated else ones
    return Geometry(window, per_dim(2, window), per_dim(3, (0,) * dims), dilation)


def _find_windows(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Which pixels the windows of a maximum hold."""
    return find_taps(pixels, out, _find_geometry(node, len(out), dilated=True))


def _share_pixels(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Windows that share the pixels out among a given number of them; they may overlap."""
    sides = []  # offset in the window, pixel and window, along each dimension
    for size, num in zip(pixels, out, strict=True):
        bounds = enumerate(_bound_shares(size, num))
        pairs = [(at - a, at, n) for n, (a, b) in bounds for at in range(a, b)]
        sides.append(torch.tensor(pairs))
    chosen = torch.cartesian_prod(*[torch.arange(len(side)) for side in sides])
    points = torch.stack([side[at] for side, at in zip(sides, chosen.T, strict=True)], dim=1)
    offset, source, target = points.unbind(2)
    taps = Taps(flatten(source, pixels), flatten(target, out), flatten(offset, pixels))
    order = taps.source.argsort(stable=True)
    return Taps(*(part[order] for part in taps))


def _bound_shares(size: int, num: int) -> list[tuple[int, int]]:
    """First and last pixel, not included, of the windows that share a side."""
    return [(window * size // num, -(-(window + 1) * size // num)) for window in range(num)]


def _find_sides(node: Node, base: Lookup, dims: int, dilated: bool) -> Shape | None:
    """The sides of windows that stand side by side, or nothing."""
    if base(node.inputs[0]).dim() != dims + 2:
        return None
    shape = _find_geometry(node, dims, dilated)
    plain = shape.stride == shape.kernel and not any(shape.padding) and set(shape.dilation) == {1}
    return shape.kernel if plain else None


def _find_shares(node: Node, base: Lookup, dims: int) -> Shape | None:
    """The same of windows that share the pixels out."""
    value, out = base(node.inputs[0]), base(node.outputs[0])
    pairs = list(zip(value.shape[-dims:], out.shape[-dims:], strict=True))
    if value.dim() != dims + 2 or any(size % num for size, num in pairs):
        return None
    return tuple(size // num for size, num in pairs)


def _find_means(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Which pixels the windows of a mean hold."""
    return find_taps(pixels, out, _find_geometry(node, len(out), dilated=False))


def _find_divisors(node: Node, taps: Taps, pixels: Shape, out: Shape) -> list[Tensor]:
    """What a window's sum is divided by; torch has several rules, so it is asked."""
    inside = taps.target.bincount(minlength=count(out)).reshape(out).double()
    ones = torch.ones(1, 1, *pixels, dtype=torch.float64)
    means = node.func(ones, *node.args[1:], **node.kwargs)[0, 0]
    return [torch.where(inside > 0, inside / means, 1).round()]


def _find_share_sides(node: Node, taps: Taps, pixels: Shape, out: Shape) -> list[Tensor]:
    """A share's sum is divided by its sides, one after the other."""
    found = []
    for dim, (size, num) in enumerate(zip(pixels, out, strict=True)):
        sides = torch.tensor([b - a for a, b in _bound_shares(size, num)])
        found.append(sides.reshape(-1, *[1] * (len(out) - dim - 1)).expand(out))
    return found


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


def _pooling(
    name: str, dims: int, windows: Windows, sides: FindSides, sizes: Sizes | None = None
) -> Operator:
    """Windows over so many last axes; a mean has sizes that it divides by."""
    return Operator(
        name,
        column=partial(_carry_column, dims=dims),
        examples=run_apart(always),
        events=partial(_follow_windows, dims=dims, find_windows=windows, find_sizes=sizes),
        sides=lambda node, base: sides(node, base, dims),
    )


_max_sides, _mean_sides = (partial(_find_sides, dilated=dilated) for dilated in (True, False))
OPERATORS = (
    _pooling("max_pool2d_with_indices", 2, _find_windows, _max_sides),
    _pooling("max_pool3d_with_indices", 3, _find_windows, _max_sides),
    _pooling("adaptive_max_pool2d", 2, _share_pixels, _find_shares),
    _pooling("adaptive_max_pool3d", 3, _share_pixels, _find_shares),
    _pooling("avg_pool1d", 1, _find_means, _mean_sides, _find_divisors),
    _pooling("avg_pool2d", 2, _find_means, _mean_sides, _find_divisors),
    _pooling("avg_pool3d", 3, _find_means, _mean_sides, _find_divisors),
    _pooling("_adaptive_avg_pool2d", 2, _share_pixels, _find_shares, _find_share_sides),
    _pooling("_adaptive_avg_pool3d", 3, _share_pixels, _find_shares, _find_share_sides),
)
