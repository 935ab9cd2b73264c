"""Convolutions, transposed ones included."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.events.entries import enter_channel
from hardstep.evaluation.events.layouts import Layout, pad, rows_of_pixels
from hardstep.evaluation.events.linear import MOST_ENTRIES, as_index, scatter_events
from hardstep.evaluation.events.linear_stages import (
    write_lanes,
    write_rows,
    write_spread,
)
from hardstep.evaluation.events.maps import Geometry, Taps, count, find_taps, list_by
from hardstep.evaluation.events.planes import Plane, find_plane, list_sources
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Lookup, Room, Slot, Table, Word, slot_words
from hardstep.evaluation.events.responses import convolve_in_groups
from hardstep.evaluation.events.zeros import Sums, Terms, restore_zeros
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.incremental.changes import Examples, Pairs
from hardstep.evaluation.incremental.columns import Column, slices_of
from hardstep.evaluation.incremental.examples import Env, Result, always, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node, Ref

# -- columns -----------------------------------------------------------------------------------


def _carry_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """One output channel of a convolution: the candidates' filters become its channels."""
    source, weight, bias = node.args[:3]
    transposed, groups = node.args[6], node.args[8]
    changed = columns.get(weight.index)
    if source.index in columns or transposed:
        return None
    if changed is None:
        moved = columns[bias.index]
        shift = moved.slices - base(bias.index)[moved.unit]
        old = slices_of(base(node.outputs[0]), 1, moved.unit)
        return Column(1, moved.unit, old + shift.reshape(-1, *[1] * (old.dim() - 1)))
    if changed.axis != 0:
        return None
    entries = None
    if isinstance(bias, Ref):
        moved_bias = columns.get(bias.index)
        entries = moved_bias.slices if moved_bias else base(bias.index)[changed.unit]
    own = changed.unit // (base(weight.index).shape[0] // groups)
    slices = convolve_in_groups(node, base(source.index), changed.slices, entries, own)
    return Column(1, changed.unit, slices.movedim(1, 0))


# -- examples ----------------------------------------------------------------------------------


_run_pictures = run_apart(always, table=0)


def _carry_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    found = _convolve_channel(node, env, base, pairs)
    return _run_pictures(node, env, base, pairs) if found is None else found


def _convolve_channel(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    """Pictures of which one channel changed: the base's result and what the difference adds."""
    source, weight = node.args[0].index, node.args[1].index
    column, transposed, groups = env.get(source), node.args[6], node.args[8]
    if not isinstance(column, Column) or column.axis != 1 or transposed or groups != 1:
        return None
    result = base(node.outputs[0])
    # What is added to infinity is lost, and a candidate may well be finite there.
    if set(node.inputs[1:]) & set(env) or not bool(result.isfinite().all()):
        return None
    difference = column.slices - slices_of(base(source), 1, column.unit)
    new = difference[pairs.candidate, pairs.example].unsqueeze(1)
    units, counts = torch.unique_consecutive(column.unit[pairs.candidate], return_counts=True)
    filters = base(weight).movedim(1, 0)[units].unsqueeze(2)
    parts = zip(torch.split(new, counts.tolist()), filters, strict=True)
    added = [node.func(part, own, None, *node.args[3:]) for part, own in parts]
    return (Examples(pairs.examples_of(result) + torch.cat(added)),)


# -- events ------------------------------------------------------------------------------------
#
# What an event adds is known from its place: rows of weights where channels are mixed, single
# weights where they are not.


def _follow_events(planner: Planner, node: Node) -> None:
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
    bias = node.args[2].index if isinstance(node.args[2], Ref) else None
    sums = Sums(source.index, node.outputs[0], weight.index, bias)
    restore_zeros(planner, slot, target, sums, _list_terms(layout, target.layout, taps, groups))
    planner.put(node, target)


def _list_terms(layout: Layout, named: Layout, taps: Taps, groups: int) -> Terms:
    """The numbers that each pixel of a group's channels is a sum of."""
    pixels = count(tuple(named.places.shape[1:]))

    def number(channels: int, target: Tensor) -> Tensor:
        group = torch.arange(channels) // (channels // groups)
        return group[:, None] * pixels + target

    places = layout.places.flatten(1)
    own = number(len(named.places), torch.arange(pixels)).reshape(named.places.shape)
    return Terms(places[:, taps.source].flatten(), number(len(places), taps.target).flatten(), own)


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
    vectors, level = row // lanes, target.level - 0.5
    if by_vector is None:
        sizes = (target.layout.places[0].numel(), num_taps, vectors)
        plane = find_plane(layout, taps, sizes, lanes) if groups == 1 else None
        _spread_events(planner, slot, layout, target, words, taps, vectors, plane)
    else:
        spaced = tuple(tap * row for tap in range(num_taps))
        write = partial(write_rows, kind=slot.kind, vectors=vectors, taps=spaced)
        planner.stage("rows", write, words, level, [slot, target], detail=(vectors, *spaced))


def _spread_events(
    planner: Planner, slot: Slot, layout: Layout, target: Slot, words: list[Word], taps: Taps,
    vectors: int, plane: Plane | None,
) -> None:  # fmt: skip
    """Pixel beside pixel: every event has rows of its own, unless a whole channel is added."""
    lanes, work = planner.program.lanes, 0
    if plane is not None:
        words += [Fixed(layout.named_bits(lanes))]
        words += [as_index(list_sources(plane, layout, taps, lanes)), Room("work", object())]
        work = (plane.plane + 1) * lanes * slot.kind.num_bytes // 4
    write = partial(write_spread, kind=slot.kind, vectors=vectors, plane=plane)
    level, detail = target.level - 0.5, (vectors, plane)
    planner.stage("spread", write, words, level, [slot, target], work, detail)


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
    scatter_events(planner, slot, target, source[order], place[order], Table(key, make))


# -- entries -----------------------------------------------------------------------------------


def _count_multiply_adds(node: Node, base: Lookup) -> int:
    return int(base(node.args[1].index)[0].numel())


OPERATORS = (
    Operator(
        "convolution",
        column=_carry_column,
        examples=_carry_examples,
        events=_follow_events,
        events_entry=enter_channel,
        of_pictures=True,
        takes_units=True,
        multiply_adds=_count_multiply_adds,
    ),
)
