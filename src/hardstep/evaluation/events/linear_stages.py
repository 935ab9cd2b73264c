"""The stages of linear maps: an event adds its change, times weights that follow from its place.

spread    every event has targets of its own, rows of weights: pixel beside pixel
rows      a vector's events share their targets: the channels of a pixel
product   all events share one target, which stays in registers
lanes     every lane meets its like: filters of single channels, sums and means over pixels
scatter   single numbers
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import TypeVar

from hardstep.evaluation.events.joint import JointWriter
from hardstep.evaluation.events.planes import Plane, add_plane, has_many
from hardstep.evaluation.events.stages import bounds, copy_base, each_target
from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_vectors import Value, sums_in_registers
from hardstep.evaluation.fused.expressions import Kind

Item = TypeVar("Item")


def write_spread(w: Writer, kind: Kind, vectors: int, plane: Plane | None = None) -> None:
    """Every event adds a few rows of weights, times its change.

    An event at a place has a pixel (a list of targets) and a first weight; a target has the first
    of the vectors that a row is added to, and how far its weights are from the first. Where many
    pixels of one channel changed, all targets are summed instead.
    """
    source, target = w.slot(kind), w.slot(kind)
    lists = tuple(w.pointer() for _ in range(5))
    weights = w.pointer()
    if plane is None:
        _spread_events(w, source, target, vectors, lists, weights)
        return
    named, sources, changes = w.pointer(), w.pointer(), w.room()
    many = has_many(w, source, named, plane)
    with w.when(many):
        add_plane(w, source, target, plane, weights, sources, changes)
    with w.when(w.let(f"xor i1 {many}, true")):
        _spread_events(w, source, target, vectors, lists, weights)


def _spread_events(
    w: Writer, source: SlotNames, target: SlotNames, vectors: int, lists: tuple[Value, ...],
    weights: Value,
) -> None:  # fmt: skip
    """Add rows of weights, event by event."""
    kind, (pixel_of, weight_of, starts, targets, offsets) = source.kind, lists
    with w.each_event(source) as (place, new):
        old = w.read(kind.element, source.base, place)
        change = w.splat(w.let(f"fsub {kind.element} {new}, {old}"), kind)
        pixel = w.read_index(pixel_of, place)
        first = w.read_index(weight_of, place)
        begin, end = bounds(w, starts, pixel)
        w.count_work(w.let(f"mul i64 {w.let(f'sub i64 {end}, {begin}')}, {vectors}"))
        with w.loop(begin, end) as number:
            row = w.read_index(targets, number)
            _renew(w, target, row, vectors)
            at = w.let(f"add i64 {first}, {w.read_index(offsets, number)}")
            line, out = w.offset(kind, weights, at), w.vector_at(kind, target.new, row)
            for vector in range(vectors):
                weight = w.load_vector(kind, line, str(vector))
                total = w.load_vector(kind, out, str(vector))
                w.store_vector(kind, w.fma(kind, change, weight, total), out, str(vector))


def _renew(w: Writer, target: SlotNames, row: Value, vectors: int) -> None:
    """See to it that vectors of a target hold new values."""
    with w.when(w.let(f"xor i1 {w.is_touched(target, row)}, true")):
        copy_base(w, target, row, vectors)


def write_rows(w: Writer, kind: Kind, vectors: int, taps: tuple[int, ...]) -> None:
    """The same where all lanes of a vector have the same targets.

    Targets are taken a few at a time, and their sums stay in registers while the vector's events
    are added. Most pixels reach all taps of a filter, whose weights stand at known distances.

    Args:
        w: Of the stage.
        kind: Of the numbers.
        vectors: Of a target.
        taps: How far the weights of each tap are from the first.
    """
    source, target = w.slot(kind), w.slot(kind)
    named, list_of, weight_of, starts = (w.pointer() for _ in range(4))
    targets, offsets, weights = w.pointer(), w.pointer(), w.pointer()
    changes, at = w.variable(kind), w.variable(Kind.I64, scalar=True)
    with w.each_touched(source) as vector:
        change, bits = w.difference(source, vector, named)
        w.store(kind, change, changes, 64)
        begin, end = bounds(w, starts, w.read_index(list_of, vector))
        length = w.let(f"sub i64 {end}, {begin}")
        pairs = w.let(f"mul i64 {w.count_bits(bits)}, {length}")
        w.count_work(w.let(f"mul i64 {pairs}, {vectors}"))
        firsts = w.offset(Kind.I32, weight_of, w.let(f"mul i64 {vector}, {w.lanes}"))
        add = partial(_add_events, w, target, targets, bits, (changes, firsts), vectors)
        complete = w.let(f"icmp eq i64 {length}, {len(taps)}")
        with w.when(complete):
            for few in _split(list(enumerate(taps)), vectors):
                numbers = [w.let(f"add i64 {begin}, {n}") for n, _ in few]
                add(numbers, [w.offset(kind, weights, str(tap)) for _, tap in few])
        with w.when(w.let(f"xor i1 {complete}, true")):
            w.line(f"store i64 {begin}, ptr {at}")
            for size in [
                size for size in (4, 2, 1) if size == 1 or size * vectors <= sums_in_registers()
            ]:
                with w.advance(at, end, size) as number:
                    numbers = [w.let(f"add i64 {number}, {n}") for n in range(size)]
                    add(
                        numbers,
                        [w.offset(kind, weights, w.read_index(offsets, n)) for n in numbers],
                    )


def _add_events(
    w: Writer, target: SlotNames, targets: Value, bits: Value, events: tuple[Value, Value],
    vectors: int, numbers: list[Value], lines: list[Value],
) -> None:  # fmt: skip
    """Add a vector's events to some targets.

    Args:
        w: Of the stage.
        target: The slot that they belong to.
        targets: The list of them.
        bits: Which lanes are events.
        events: Where the lanes' changes stand, and their first weights.
        vectors: Of a target.
        numbers: Where the targets stand in their list.
        lines: Where the weights of each target start.
    """
    kind, (changes, firsts) = target.kind, events
    rows = [w.read_index(targets, number) for number in numbers]
    for row in rows:
        _renew(w, target, row, vectors)
    outs = [w.vector_at(kind, target.new, row) for row in rows]
    for few in _split([(n, v) for n in range(len(rows)) for v in range(vectors)]):
        with _sums(w, kind, [(outs[n], v) for n, v in few]) as sums, w.each_bit(bits) as lane:
            factor = w.splat(w.read(kind.element, changes, lane), kind)
            first = w.read_index(firsts, lane)
            own = {n: w.offset(kind, lines[n], first) for n in dict.fromkeys(n for n, _ in few)}
            for (n, v), total in zip(few, sums, strict=True):
                _add_product(w, kind, factor, w.load_vector(kind, own[n], str(v)), total)


def _split(items: list[Item], vectors: int = 1) -> list[list[Item]]:
    """As many at a time as registers hold, each with some vectors."""
    most = max(1, sums_in_registers() // vectors)
    return [items[start : start + most] for start in range(0, len(items), most)]


@contextmanager
def _sums(w: Writer, kind: Kind, vectors: list[tuple[Value, int]]) -> Iterator[list[Value]]:
    """Vectors (address and number) as variables, which are stored in the end."""
    sums = [w.variable(kind) for _ in vectors]
    for (address, number), total in zip(vectors, sums, strict=True):
        w.store(kind, w.load_vector(kind, address, str(number)), total, 64)
    yield sums
    for (address, number), total in zip(vectors, sums, strict=True):
        w.store_vector(kind, w.load(kind, total, 64), address, str(number))


def _add_product(w: Writer, kind: Kind, factor: Value, weight: Value, total: Value) -> None:
    w.store(kind, w.fma(kind, factor, weight, w.load(kind, total, 64)), total, 64)


def write_product(w: JointWriter, kind: Kind, vectors: int) -> None:
    """Rows of weights that are all added to one target, read once for all members of a group.

    Vectors are taken in the order in which they stand, whoever touched them: sums then are the same
    bits in any company. A member adds 0 where only another one changed.
    """
    sources, targets = w.slots(kind), w.slots(kind)
    length, named, weight_of, weights = w.word(), *(w.pointer() for _ in range(3))
    counts = [w.let(f"load i64, ptr {source.count}") for source in sources]
    for target, count in zip(targets, counts, strict=True):
        with w.when(w.let(f"icmp ne i64 {count}, 0")):
            copy_base(w, target, "0", vectors)
    together = reduce(lambda a, b: w.let(f"or i64 {a}, {b}"), counts)
    with w.when(w.let(f"icmp ne i64 {together}, 0")):
        size = w.find_size(vectors)
        for few in (range(n, min(n + size, vectors)) for n in range(0, vectors, size)):
            outs = [(target.new, v) for target in targets for v in few]
            with _sums(w, kind, outs) as sums, _each_vector(w, sources, length) as vector:
                firsts = w.offset(Kind.I32, weight_of, w.let(f"mul i64 {vector}, {w.lanes}"))
                changes, bits = _find_changes(w, sources, vector, named, len(few))
                with w.each_bit(bits) as lane:
                    line = w.offset(kind, weights, w.read_index(firsts, lane))
                    rows = [w.load_vector(kind, line, str(v)) for v in few]
                    for n, change in enumerate(changes):
                        factor = w.splat(w.read(kind.element, change, lane), kind)
                        for row, total in zip(rows, sums[n * len(few) :], strict=False):
                            _add_product(w, kind, factor, row, total)


@contextmanager
def _each_vector(w: JointWriter, sources: list[SlotNames], length: Value) -> Iterator[Value]:
    """Every vector that some member touched, in order; rooms of marks are filled up with zeros."""
    marks = f"<{w.lanes} x i8>"
    blocks = w.let(f"udiv i64 {w.let(f'add i64 {length}, {w.lanes - 1}')}, {w.lanes}")
    with w.loop("0", blocks) as block:
        first = w.let(f"mul i64 {block}, {w.lanes}")
        found = []
        for source in sources:
            place = w.let(f"getelementptr i8, ptr {source.touched}, i64 {first}")
            found.append(w.let(f"load {marks}, ptr {place}, align 1"))
        either = reduce(lambda a, b: w.let(f"or {marks} {a}, {b}"), found)
        some = w.let(f"icmp ne {marks} {either}, zeroinitializer")
        with w.each_bit(w.let(f"bitcast <{w.lanes} x i1> {some} to i{w.lanes}")) as number:
            yield w.let(f"add i64 {first}, {number}")


def _find_changes(
    w: JointWriter, sources: list[SlotNames], vector: Value, named: Value, vectors: int
) -> tuple[list[Value], Value]:
    """Where every member's changes of a vector stand, and the bits of lanes that any changed."""
    kind, integer = sources[0].kind, f"i{w.lanes}"
    known = w.let(f"trunc i32 {w.read('i32', named, vector)} to {integer}")
    changes, either = [], []
    for number, source in enumerate(sources):
        new, old = w.current(source, vector), w.load_vector(kind, source.base, vector)
        bits = w.let(f"and {integer} {w.event_bits(kind, new, old)}, {known}")
        w.count_work(w.let(f"mul i64 {w.count_bits(bits)}, {vectors}"), number)
        change = w.variable(kind)
        w.store(kind, w.binary("fsub", kind, new, old), change, 64)
        changes.append(change)
        either.append(bits)
    return changes, reduce(lambda a, b: w.let(f"or {integer} {a}, {b}"), either)


def write_lanes(w: Writer, kind: Kind) -> None:
    """From lane to the same lane: touched vectors times vectors of weights."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, offsets, weights = (w.pointer() for _ in range(4))
    with w.each_touched(source) as vector:
        new = w.load_vector(kind, source.new, vector)
        change = w.binary("fsub", kind, new, w.load_vector(kind, source.base, vector))
        begin, end = bounds(w, starts, vector)
        w.count_work(w.let(f"sub i64 {end}, {begin}"))
        with w.loop(begin, end) as number:
            row = w.read_index(targets, number)
            _renew(w, target, row, 1)
            weight = w.load_vector(kind, weights, w.read_index(offsets, number))
            total = w.load_vector(kind, target.new, row)
            w.store_vector(kind, w.fma(kind, change, weight, total), target.new, row)


def write_scatter(w: Writer, kind: Kind) -> None:
    """Every event adds to a few places, times their weights."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, weights = (w.pointer() for _ in range(3))
    element = kind.element
    with w.each_event(source) as (place, new):
        old = w.read(element, source.base, place)
        change = w.let(f"fsub {element} {new}, {old}")
        with each_target(w, target, starts, place, targets) as (number, at):
            weight = w.read(element, weights, number)
            total = w.let(
                f"fadd {element} {w.read(element, target.new, at)}, "
                f"{w.let(f'fmul {element} {change}, {weight}')}"
            )
            w.line(f"store {element} {total}, ptr {w.offset(kind, target.new, at)}")
