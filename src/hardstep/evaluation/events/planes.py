"""Convolutions of one channel of which many pixels changed.

Event by event, every change is added to the targets of its pixel, which come from memory and go
back each time. With many events it is faster to visit every target once and to add all its taps,
changed or not: the sums of a few targets stay in registers, and they share the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Layout
from hardstep.evaluation.events.maps import Taps
from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_vectors import Value, sums_in_registers
from hardstep.evaluation.fused.expressions import Kind

# Cycles, roughly: an event's target costs a look at its list, and then a load and a store for each
# of its vectors; a sum in a register costs little more than the multiplication.
CYCLES_PER_TARGET, CYCLES_PER_VECTOR, CYCLES_PER_SUM = 5.0, 2.0, 1.3
MOST_PIXELS = 4  # whose sums are found together; enough to hide how long an addition takes


@dataclass(frozen=True)
class Plane:
    """Sizes of a convolution whose source holds channel after channel."""

    limit: int  # events of one channel; with more of them, all targets are summed
    plane: int  # vectors of a channel
    pixels: int  # of the target
    taps: int
    vectors: int  # of a target's pixel, and of a tap's weights
    spaced: bool  # whether each tap's place is as far from the first's for all targets

    @property
    def together(self) -> int:
        """Pixels of the target whose sums are found together."""
        return max(1, min(MOST_PIXELS, sums_in_registers() // self.vectors))


# -- planning ----------------------------------------------------------------------------------


def find_plane(layout: Layout, taps: Taps, sizes: tuple[int, int, int], lanes: int) -> Plane | None:
    """How a source's channels can be taken as planes, if it holds channel after channel.

    Args:
        layout: Of the source.
        taps: Of the convolution.
        sizes: The target's pixels, the taps of a filter, the vectors of a target.
        lanes: Of a vector.
    """
    places = layout.places.flatten(1)
    length, rest = divmod(layout.size, len(places))
    own = places - torch.arange(len(places))[:, None] * length
    inside = bool(((own >= 0) & (own < length)).all())
    if rest or length % lanes or not inside or not torch.equal(own, own[:1].expand_as(own)):
        return None
    limit = find_limit(len(taps.source) / places.shape[1], *sizes)
    read = _find_places(layout, taps, sizes[:2], length)
    spaced = bool((read < length).all()) and torch.equal(read - read[:, :1], _space(read))
    return Plane(limit, length // lanes, *sizes, spaced)


def _find_places(layout: Layout, taps: Taps, sizes: tuple[int, int], border: int) -> Tensor:
    """The place that each tap reads for each target, (pixels, taps); `border` where it is none."""
    found = torch.full(sizes, border)
    found[taps.target, taps.tap] = layout.places[0].flatten()[taps.source]
    return found


def _space(read: Tensor) -> Tensor:
    """How far each tap of the first target is from its first, for all targets."""
    return (read[:1] - read[0, 0]).expand_as(read)


def find_limit(reached: float, pixels: int, taps: int, vectors: int) -> int:
    """The number of events up to which they are added one by one.

    Args:
        reached: Targets of a pixel, on average.
        pixels: Of the target.
        taps: Of a filter.
        vectors: Of a target.
    """
    one_event = reached * (CYCLES_PER_TARGET + CYCLES_PER_VECTOR * vectors)
    return int(pixels * taps * vectors * CYCLES_PER_SUM / max(one_event, 1))


def list_sources(plane: Plane, layout: Layout, taps: Taps, lanes: int) -> Tensor:
    """The place that each tap reads for each target, in the order in which a kernel asks.

    A tap that reads the border has the place behind the channel. Where taps are spaced alike, the
    first one's place for each target, and then how far the others are from it.
    """
    found = _find_places(layout, taps, (plane.pixels, plane.taps), plane.plane * lanes)
    if plane.spaced:
        return torch.cat([found[:, 0], _space(found)[0]])
    whole = plane.pixels // plane.together * plane.together
    blocks = found[:whole].reshape(-1, plane.together, plane.taps).transpose(1, 2)
    return torch.cat([blocks.flatten(), found[whole:].flatten()])


# -- writing -----------------------------------------------------------------------------------


def has_many(w: Writer, source: SlotNames, named: Value, plane: Plane) -> Value:
    """Whether more events than the limit are there, all of them in one channel."""
    channel = _first_channel(w, source, plane)
    events, others = w.zero(), w.zero()
    with w.each_touched(source) as vector:
        _, bits = w.difference(source, vector, named)
        other = w.let(f"icmp ne i64 {w.let(f'udiv i64 {vector}, {plane.plane}')}, {channel}")
        w.add_to(events, w.count_bits(bits))
        w.add_to(others, w.let(f"zext i1 {other} to i64"))
    many = w.let(f"icmp sgt i64 {w.let(f'load i64, ptr {events}')}, {plane.limit}")
    alone = w.let(f"icmp eq i64 {w.let(f'load i64, ptr {others}')}, 0")
    return w.let(f"and i1 {many}, {alone}")


def _first_channel(w: Writer, source: SlotNames, plane: Plane) -> Value:
    """Of the first touched vector."""
    return w.let(f"udiv i64 {w.read_index(source.list, '0')}, {plane.plane}")


def add_plane(
    w: Writer, source: SlotNames, target: SlotNames, plane: Plane, weights: Value, sources: Value,
    changes: Value,
) -> None:  # fmt: skip
    """Add one channel's changes to all targets.

    Args:
        w: Of the stage.
        source: Where one channel was touched.
        target: Where nothing was.
        plane: Sizes.
        weights: Of all channels, tap by tap.
        sources: What `list_sources` returns.
        changes: Room for the channel's changes, and a vector of zeros for the border.
    """
    kind, channel = source.kind, _first_channel(w, source, plane)
    first = w.let(f"mul i64 {channel}, {plane.plane}")
    with w.loop("0", str(plane.plane)) as number:
        vector = w.let(f"add i64 {first}, {number}")
        old = w.load_vector(kind, source.base, vector)
        change = w.binary("fsub", kind, w.current(source, vector), old)
        w.store_vector(kind, change, changes, number)
    w.store_vector(kind, w.constant(0.0, kind), changes, str(plane.plane))
    row = w.let(f"mul i64 {channel}, {plane.taps * plane.vectors}")
    line, at = w.vector_at(kind, weights, row), w.zero()
    for size in dict.fromkeys((plane.together, 1)):
        with w.advance(at, str(plane.pixels), size) as pixel:
            _add_taps(w, target, plane, (line, sources, changes), pixel, size)
    w.count_work(str(plane.pixels * plane.taps * plane.vectors))


def _add_taps(
    w: Writer, target: SlotNames, plane: Plane, tables: tuple[Value, Value, Value], first: Value,
    size: int,
) -> None:  # fmt: skip
    """Find the sums of some pixels, from the first on.

    Args:
        w: Of the stage.
        target: Whose pixels they are.
        plane: Sizes.
        tables: The channel's weights, what `list_sources` returns, the changes.
        first: Pixel.
        size: How many.
    """
    kind, (line, sources, changes) = target.kind, tables
    read = _read_spaced if plane.spaced else _read_listed
    read_changes = read(w, plane, sources, changes, first, size, kind)
    start = w.let(f"mul i64 {first}, {plane.vectors}")
    places = [w.let(f"add i64 {start}, {n}") for n in range(size * plane.vectors)]
    sums = [w.variable(kind) for _ in places]
    for place, total in zip(places, sums, strict=True):
        w.store(kind, w.load_vector(kind, target.base, place), total, 64)
    with w.loop("0", str(plane.taps)) as tap:
        row = w.vector_at(kind, line, w.let(f"mul i64 {tap}, {plane.vectors}"))
        weights = [w.load_vector(kind, row, str(v)) for v in range(plane.vectors)]
        for n, change in enumerate(read_changes(tap)):
            factor = w.splat(change, kind)
            for v, weight in enumerate(weights):
                total = sums[n * plane.vectors + v]
                w.store(kind, w.fma(kind, factor, weight, w.load(kind, total, 64)), total, 64)
    for place, total in zip(places, sums, strict=True):
        w.store_vector(kind, w.load(kind, total, 64), target.new, place)
        w.touch(target, place)


ReadChanges = Callable[[Value], list[Value]]  # those that a tap reads for each of some pixels


def _read_listed(
    w: Writer, plane: Plane, sources: Value, changes: Value, first: Value, size: int, kind: Kind
) -> ReadChanges:
    """Places are looked up one by one."""
    lists = w.offset(Kind.I32, sources, w.let(f"mul i64 {first}, {plane.taps}"))

    def read(tap: Value) -> list[Value]:
        own = w.offset(Kind.I32, lists, w.let(f"mul i64 {tap}, {size}"))
        places = [w.read_index(own, str(n)) for n in range(size)]
        return [w.read(kind.element, changes, place) for place in places]

    return read


def _read_spaced(
    w: Writer, plane: Plane, sources: Value, changes: Value, first: Value, size: int, kind: Kind
) -> ReadChanges:
    """A look-up for each pixel, and one for each tap."""
    pixels = [w.let(f"add i64 {first}, {n}") for n in range(size)]
    starts = [w.offset(kind, changes, w.read_index(sources, pixel)) for pixel in pixels]

    def read(tap: Value) -> list[Value]:
        place = w.read_index(sources, w.let(f"add i64 {tap}, {plane.pixels}"))
        return [w.read(kind.element, start, place) for start in starts]

    return read
