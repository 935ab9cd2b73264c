"""Linear maps of changed values: convolutions, matrix products, sums; and numbers that move.

What an event adds is known from its place: rows of weights where a map mixes channels, single
weights where it does not.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.events.layouts import Layout, pad, rows_of_pixels
from hardstep.evaluation.events.linear_stages import (
    write_lanes,
    write_product,
    write_rows,
    write_scatter,
    write_spread,
)
from hardstep.evaluation.events.maps import Geometry, Taps, count, find_taps, list_by
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Lookup, Slot, Table, Word, slot_words
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.trace.record import Node, Ref

MOST_ENTRIES = 1 << 24  # of a list of single weights


def as_index(values: Tensor) -> Fixed:
    """Numbers as kernels read them, in 32 bits."""
    if values.numel() and values.max() > torch.iinfo(torch.int32).max:
        raise Unfusable("a layer has more weights than 32 bits can number")
    return Fixed(values.to(torch.int32).contiguous())


# -- convolutions ------------------------------------------------------------------------------


def follow_convolution(planner: Planner, node: Node) -> None:
    """Events through a convolution whose weights do not change."""
    source, weight = node.args[:2]
    if set(node.inputs) & planner.values.keys() != {source.index}:
        raise Unfusable("convolution: the weights change")
    slot, layout = planner.slot(source.index)
    out, kernel = planner.base(node.outputs[0]), planner.base(weight.index)
    if not slot.kind.is_float or layout.axis != 0 or out.dim() != kernel.dim():
        raise Unfusable("convolution of something else than pictures")
    stride, padding, dilation, transposed = node.args[3:7]
    groups, sides = node.args[8], tuple(kernel.shape[2:])
    shape = Geometry(sides, tuple(stride), tuple(padding), tuple(dilation), transposed)
    taps = find_taps(tuple(layout.places.shape[1:]), tuple(out.shape[2:]), shape)
    target = planner.new_slot(
        node.outputs[0], rows_of_pixels(tuple(out.shape[1:]), planner.program.lanes), behind(slot)
    )
    channels, outputs = layout.places.shape[0], out.shape[1]
    if groups == 1 or (outputs // groups) % planner.program.lanes == 0:
        _spread(planner, slot, layout, target, weight.index, taps, groups, transposed)
    elif groups == channels == outputs and layout.key == _rows_key(layout, planner):
        _depthwise(planner, slot, layout, target, weight.index, taps)
    else:
        _scatter_filters(planner, slot, layout, target, weight.index, taps, groups, transposed)
    planner.put(node, target)


def _rows_key(layout: Layout, planner: Planner) -> object:
    return rows_of_pixels(tuple(layout.places.shape), planner.program.lanes).key


def _by_channel(kernel: Tensor, groups: int, transposed: bool) -> Tensor:
    """Filters as (channels in, taps, channels out of the group)."""
    if transposed:  # (in, out of the group, *taps)
        return kernel.flatten(2).transpose(1, 2)
    parts = kernel.reshape(groups, len(kernel) // groups, kernel.shape[1], -1)
    return parts.permute(0, 2, 3, 1).flatten(0, 1)  # from (group, out, in, taps)


def _spread(
    planner: Planner, slot: Slot, layout: Layout, target: Slot, weight: int, taps: Taps,
    groups: int, transposed: bool,
) -> None:  # fmt: skip
    """Rows of weights: all channels out of a group."""
    lanes = planner.program.lanes
    channels, pixels = layout.places.shape[0], count(tuple(layout.places.shape[1:]))
    num_taps = count(tuple(planner.base(weight).shape[2:]))
    row = pad(_by_channel(planner.base(weight), groups, transposed).shape[2], lanes)
    per_pixel = target.size // count(tuple(target.layout.places.shape[1:])) // lanes
    # A list of targets per pixel and group.
    group = torch.arange(groups)
    key = (taps.source[:, None] * groups + group).flatten()
    first = (taps.target[:, None] * per_pixel + group * (row // lanes)).flatten()
    offset = (taps.tap[:, None] * row).expand(-1, groups).flatten()
    order = key.argsort(stable=True)
    starts = list_by(key[order], pixels * groups + 1)
    channel = torch.arange(channels)
    own = torch.arange(pixels)[None] * groups + (channel // (channels // groups))[:, None]
    pixel_of = torch.full((layout.size,), pixels * groups)
    pixel_of[layout.places.flatten()] = own.flatten()
    weight_of = torch.zeros(layout.size, dtype=torch.long)
    places = layout.places.reshape(channels, -1)
    weight_of[places] = (channel * num_taps * row)[:, None].expand(-1, pixels)

    def make(values: Lookup) -> Tensor:
        by_channel = _by_channel(values(weight), groups, transposed)
        return fill(by_channel, (0, row - by_channel.shape[2])).contiguous()

    by_vector = _find_shared(layout, pixel_of, pixels * groups, lanes)
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    if by_vector is None:
        words += [as_index(pixel_of)]
    else:
        words += [Fixed(layout.named_bits(lanes)), as_index(by_vector)]
    words += [as_index(weight_of)]
    words += [Fixed(starts), as_index(first[order]), as_index(offset[order])]
    words += [Table(("rows", weight, groups, transposed, row), make)]
    if by_vector is None:
        name: str = "spread"
        detail: tuple[int, ...] = (row // lanes,)
        write = partial(write_spread, kind=slot.kind, vectors=row // lanes)
    else:
        spaced = tuple(tap * row for tap in range(num_taps))
        name, detail = "rows", (row // lanes, *spaced)
        write = partial(write_rows, kind=slot.kind, vectors=row // lanes, taps=spaced)
    planner.stage(name, write, words, target.level - 0.5, [slot, target], detail=detail)


def _find_shared(layout: Layout, key: Tensor, nothing: int, lanes: int) -> Tensor | None:
    """The key that all lanes of each vector have, if they have; `nothing` where none is named."""
    by_vector, named = key.reshape(-1, lanes), layout.named.reshape(-1, lanes)
    shared = torch.where(named, by_vector, -1).amax(1)
    if not bool(((by_vector == shared[:, None]) | ~named).all()):
        return None
    return torch.where(shared < 0, nothing, shared)


def _depthwise(
    planner: Planner, slot: Slot, layout: Layout, target: Slot, weight: int, taps: Taps
) -> None:
    """A vector of channels at a time: each channel has a filter of its own."""
    lanes = planner.program.lanes
    channels, pixels = layout.places.shape[0], count(tuple(layout.places.shape[1:]))
    vectors = pad(channels, lanes) // lanes
    each = torch.arange(vectors)
    source = (taps.source[:, None] * vectors + each).flatten()
    first = (taps.target[:, None] * vectors + each).flatten()
    offset = (taps.tap[:, None] * vectors + each).flatten()
    order = source.argsort(stable=True)

    def make(values: Lookup) -> Tensor:
        by_tap = values(weight).flatten(1).T  # (taps, channels)
        return fill(by_tap, (0, vectors * lanes - channels)).contiguous()

    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [Fixed(list_by(source[order], pixels * vectors)), as_index(first[order])]
    words += [as_index(offset[order]), Table(("taps", weight, vectors), make)]
    write = partial(write_lanes, kind=slot.kind)
    planner.stage("lanes", write, words, target.level - 0.5, [slot, target])


def _scatter_filters(
    planner: Planner, slot: Slot, layout: Layout, target: Slot, weight: int, taps: Taps,
    groups: int, transposed: bool,
) -> None:  # fmt: skip
    """Single weights, where few channels meet."""
    channels, pixels = layout.places.shape[0], count(tuple(layout.places.shape[1:]))
    by_channel = _by_channel(planner.base(weight), groups, transposed)
    num_out = by_channel.shape[2]
    if len(taps.source) * channels * num_out > MOST_ENTRIES:
        raise Unfusable("convolution: too many groups of odd sizes")
    channel, own = torch.arange(channels)[:, None, None], torch.arange(num_out)
    out = (channel // (channels // groups)) * num_out + own  # (channels, 1, out)
    flat_in, flat_out = layout.places.reshape(channels, -1), target.layout.places.flatten(1)
    source = flat_in[:, taps.source, None].expand(-1, -1, num_out).flatten()
    place = flat_out[out, taps.target[None, :, None]].flatten()
    number = (channel * by_channel.shape[1] + taps.tap[None, :, None]) * num_out + own
    order = source.argsort(stable=True)
    chosen = number.flatten()[order]

    def make(values: Lookup) -> Tensor:
        return _by_channel(values(weight), groups, transposed).reshape(-1)[chosen]

    key = ("filters", weight, groups, transposed, layout.key, target.layout.key, pixels)
    _scatter(planner, slot, target, source[order], place[order], Table(key, make))


def _scatter(
    planner: Planner, slot: Slot, target: Slot, source: Tensor, place: Tensor, weights: Table
) -> None:
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    lanes = planner.program.lanes
    pairs = _pair_vectors(slot.layout, target.layout, source, place, lanes)
    if pairs is None:
        words += [Fixed(list_by(source, slot.size)), as_index(place), weights]
        name, write = "scatter", partial(write_scatter, kind=slot.kind)
    else:
        first, second, number = pairs

        def make(values: Lookup) -> Tensor:
            given = weights.make(values)
            spread = given.new_zeros(len(first), lanes)
            spread[number, place % lanes] = given
            return spread

        words += [Fixed(list_by(first, slot.size // lanes)), as_index(second)]
        words += [as_index(torch.arange(len(first))), Table(("in lanes", weights.key), make)]
        name, write = "lanes", partial(write_lanes, kind=slot.kind)
    planner.stage(name, write, words, target.level - 0.5, [slot, target])


def _pair_vectors(
    old: Layout, new: Layout, source: Tensor, place: Tensor, lanes: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Vectors that single numbers go from and to, and the pair of each, if lanes meet their like.

    Numbers that no entry names are multiplied by 0; so whoever reads a lane must have an entry.
    """
    if not torch.equal(source % lanes, place % lanes):
        return None
    vectors = new.size // lanes
    key, number = torch.unique((source // lanes) * vectors + place // lanes, return_inverse=True)
    first, second = key // vectors, key % vectors
    given = torch.zeros(len(key), lanes, dtype=torch.bool)
    given[number, place % lanes] = True
    if len(source) != int(given.sum()) or bool(
        (new.named.reshape(-1, lanes)[second] > given).any()
    ):
        return None
    return first, second, number


# -- products and sums -------------------------------------------------------------------------


def follow_product(planner: Planner, node: Node) -> None:
    """Events through x·W: each adds a row of W."""
    refs = [argument.index for argument in node.args if isinstance(argument, Ref)]
    left, right = refs[-2:]
    if set(node.inputs) & planner.values.keys() != {left} or any(
        scale != 1 for scale in node.kwargs.values()
    ):
        raise Unfusable(f"{node.name}: another factor changes, or there is a scale")
    slot, layout = planner.slot(left)
    if layout.axis != 0 or layout.places.dim() != 1 or not slot.kind.is_float:
        raise Unfusable(f"{node.name} of something else than units")
    lanes, inputs = planner.program.lanes, len(layout.places)
    outputs = planner.base(node.outputs[0]).shape[1]
    row = pad(outputs, lanes)
    named = Layout(torch.arange(outputs), row)
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    weight_of = torch.zeros(layout.size, dtype=torch.long)
    weight_of[layout.places] = torch.arange(inputs) * row
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [Fixed(layout.named_bits(lanes)), as_index(weight_of)]
    words += [
        Table(("matrix", right, row), lambda v: fill(v(right), (0, row - outputs)).contiguous())
    ]
    write = partial(write_product, kind=slot.kind, vectors=row // lanes)
    planner.stage("product", write, words, target.level - 0.5, [slot, target], detail=row // lanes)
    planner.put(node, target)


def follow_sum(planner: Planner, node: Node) -> None:
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
    factor = 1.0 if node.name == "sum" else num * 1.0 / layout.places.numel()
    weights = Table(
        ("factor", factor, len(source), result.dtype),
        lambda _: torch.full((len(source),), factor, dtype=result.dtype),
    )
    _scatter(planner, slot, target, source[order], place[order], weights)
    planner.put(node, target)


def follow_average(planner: Planner, node: Node) -> None:
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
    _scatter(planner, slot, target, source[order], place[order], table)
    planner.put(node, target)
