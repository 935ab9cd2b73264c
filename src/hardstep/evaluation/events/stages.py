"""The stages that are the same for every network: entering, spreading, pooling, moving, leaving.

Each function writes one stage for a kind of numbers; sizes and tables are arguments of the stage,
so that layers of one kind share it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_expressions import emit_extreme
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Fn, Kind


def write_enter(w: Writer, kind: Kind) -> None:
    """What is added to one channel: a line of a table (examples, candidates, length)."""
    slot = w.slot(kind)
    table, units, stride, length = w.pointer(), w.pointer(), w.pointer(), w.word()
    unit, num = w.read("i64", units, "%c"), w.read("i64", stride, "0")
    pair = w.let(f"add i64 {w.let(f'mul i64 %b, {num}')}, %c")
    line = w.offset(kind, table, w.let(f"mul i64 {pair}, {length}"))
    vectors = w.let(f"udiv i64 {length}, {w.lanes}")
    first = w.let(f"mul i64 {unit}, {vectors}")
    with w.loop("0", vectors) as number:
        vector = w.let(f"add i64 {first}, {number}")
        old = w.load_vector(kind, slot.base, vector)
        new = w.binary("fadd", kind, old, w.load_vector(kind, line, number))
        with w.when(w.any(w.differs(kind, new, old))):
            w.store_vector(kind, new, slot.new, vector)
            w.touch(slot, vector)


def write_enter_vector(w: Writer, kind: Kind) -> None:
    """A number per channel, new in some: a line of a table (candidates, channels)."""
    slot = w.slot(kind)
    table, vectors, pixels = w.pointer(), w.word(), w.word()
    line = w.vector_at(kind, table, w.let(f"mul i64 %c, {vectors}"))
    with w.loop("0", vectors) as number:
        new = w.load_vector(kind, line, number)
        old = w.load_vector(kind, slot.base, number)
        with w.when(w.any(w.differs(kind, new, old))), w.loop("0", pixels) as pixel:
            vector = w.let(f"add i64 {w.let(f'mul i64 {pixel}, {vectors}')}, {number}")
            w.store_vector(kind, new, slot.new, vector)
            w.touch(slot, vector)


def write_spread(w: Writer, kind: Kind, vectors: int) -> None:
    """A linear map whose weights come in rows: every event adds a few rows, times its change.

    An event at a place has a pixel (a list of targets) and a first weight; a target has the first
    of the vectors that a row is added to, and how far its weights are from the first.
    """
    source, target = w.slot(kind), w.slot(kind)
    pixel_of, weight_of, starts = w.pointer(), w.pointer(), w.pointer()
    targets, offsets, weights = w.pointer(), w.pointer(), w.pointer()
    with w.each_event(source) as (place, new):
        old = w.read(kind.element, source.base, place)
        change = w.splat(w.let(f"fsub {kind.element} {new}, {old}"), kind)
        pixel = w.read_index(pixel_of, place)
        first = w.read_index(weight_of, place)
        begin, end = _bounds(w, starts, pixel)
        w.count_work(w.let(f"mul i64 {w.let(f'sub i64 {end}, {begin}')}, {vectors}"))
        with w.loop(begin, end) as number:
            row = w.read_index(targets, number)
            with w.when(w.let(f"xor i1 {w.is_touched(target, row)}, true")):
                _copy_base(w, target, row, vectors)
            at = w.let(f"add i64 {first}, {w.read_index(offsets, number)}")
            line, out = w.offset(kind, weights, at), w.vector_at(kind, target.new, row)
            for vector in range(vectors):
                weight = w.load_vector(kind, line, str(vector))
                total = w.load_vector(kind, out, str(vector))
                w.store_vector(kind, w.fma(kind, change, weight, total), out, str(vector))


def _bounds(w: Writer, starts: Value, key: Value) -> tuple[Value, Value]:
    """Where the list of a key begins and ends."""
    return w.read_index(starts, key), w.read_index(starts, w.let(f"add i64 {key}, 1"))


def _copy_base(w: Writer, slot: SlotNames, first: Value, vectors: int) -> None:
    for number in range(vectors):
        vector = w.let(f"add i64 {first}, {number}")
        w.store_vector(slot.kind, w.load_vector(slot.kind, slot.base, vector), slot.new, vector)
        w.touch(slot, vector)


def write_depthwise(w: Writer, kind: Kind) -> None:
    """A linear map from lane to the same lane: touched vectors times vectors of weights."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, offsets, weights = (w.pointer() for _ in range(4))
    with w.each_touched(source) as vector:
        new = w.load_vector(kind, source.new, vector)
        change = w.binary("fsub", kind, new, w.load_vector(kind, source.base, vector))
        begin, end = _bounds(w, starts, vector)
        w.count_work(w.let(f"sub i64 {end}, {begin}"))
        with w.loop(begin, end) as number:
            row = w.read_index(targets, number)
            with w.when(w.let(f"xor i1 {w.is_touched(target, row)}, true")):
                _copy_base(w, target, row, 1)
            weight = w.load_vector(kind, weights, w.read_index(offsets, number))
            total = w.load_vector(kind, target.new, row)
            w.store_vector(kind, w.fma(kind, change, weight, total), target.new, row)


def write_scatter(w: Writer, kind: Kind) -> None:
    """A linear map of single numbers: every event adds to a few places, times their weights."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, weights = (w.pointer() for _ in range(3))
    element = kind.element
    with w.each_event(source) as (place, new):
        old = w.read(element, source.base, place)
        change = w.let(f"fsub {element} {new}, {old}")
        with _each_target(w, target, starts, place, targets) as (number, at):
            weight = w.read(element, weights, number)
            total = w.let(
                f"fadd {element} {w.read(element, target.new, at)}, "
                f"{w.let(f'fmul {element} {change}, {weight}')}"
            )
            w.line(f"store {element} {total}, ptr {w.offset(kind, target.new, at)}")


def write_move(w: Writer, kind: Kind) -> None:
    """Numbers that stand elsewhere from here on, each at any number of places."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets = w.pointer(), w.pointer()
    with w.each_event(source) as (place, _):
        new = w.read(kind.stored, source.new, place)
        with _each_target(w, target, starts, place, targets) as (_, at):
            w.line(f"store {kind.stored} {new}, ptr {w.offset(kind, target.new, at)}")


@contextmanager
def _each_target(
    w: Writer, target: SlotNames, starts: Value, place: Value, targets: Value
) -> Iterator[tuple[Value, Value]]:
    """The places that a place reaches, in vectors that hold new values."""
    begin, end = _bounds(w, starts, place)
    w.count_work(w.let(f"sub i64 {end}, {begin}"))
    with w.loop(begin, end) as number:
        at = w.read_index(targets, number)
        vector = w.let(f"udiv i64 {at}, {w.lanes}")
        with w.when(w.let(f"xor i1 {w.is_touched(target, vector)}, true")):
            _copy_base(w, target, vector, 1)
        yield number, at


def write_pool(w: Writer, kind: Kind) -> None:
    """The largest of several vectors, where one of them was touched."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, member_starts, members = (w.pointer() for _ in range(4))
    mark, work, count = w.room(), w.room(), w.room()
    with w.each_touched(source) as vector, w.loop(*_bounds(w, starts, vector)) as number:
        list_once(w, mark, work, count, w.read_index(targets, number))
    with each_listed(w, mark, work, count) as out:
        first, last = _bounds(w, member_starts, out)
        w.count_work(w.let(f"sub i64 {last}, {first}"))
        best = w.variable(kind)
        w.store(kind, w.current(source, w.read_index(members, first)), best, 64)
        with w.loop(w.let(f"add i64 {first}, 1"), last) as number:
            new = w.current(source, w.read_index(members, number))
            old = w.load(kind, best, 64)
            w.store(kind, emit_extreme(w, Fn.MAX, kind, new, old), best, 64)
        w.keep_if_new(target, out, w.load(kind, best, 64))


def list_once(w: Writer, mark: Value, work: Value, count: Value, number: Value) -> None:
    """Put a number on a list of work unless it stands there."""
    place = w.let(f"getelementptr i8, ptr {mark}, i64 {number}")
    fresh = w.let(f"icmp eq i8 {w.let(f'load i8, ptr {place}')}, 0")
    with w.when(fresh):
        w.line(f"store i8 1, ptr {place}")
        w.append(work, count, number)


@contextmanager
def each_listed(w: Writer, mark: Value, work: Value, count: Value) -> Iterator[Value]:
    """For every number of a list of work, which is empty afterwards."""
    with w.loop("0", w.let(f"load i64, ptr {count}")) as at:
        number = w.read_index(work, at)
        w.line(f"store i8 0, ptr {w.let(f'getelementptr i8, ptr {mark}, i64 {number}')}")
        yield number
    w.line(f"store i64 0, ptr {count}")


def write_leave(w: Writer, kind: Kind) -> None:
    """Touched values as a line of a table (candidates · examples, size), flagged."""
    slot = w.slot(kind)
    table, flags, examples, size = w.pointer(), w.pointer(), w.word(), w.word()
    pair = w.let(f"add i64 {w.let(f'mul i64 %c, {examples}')}, %b")
    some = w.let(f"icmp ne i64 {w.let(f'load i64, ptr {slot.count}')}, 0")
    with w.when(some):
        w.line(f"store i8 1, ptr {w.let(f'getelementptr i8, ptr {flags}, i64 {pair}')}")
        line = w.offset(kind, table, w.let(f"mul i64 {pair}, {size}"))
        with w.loop("0", w.let(f"udiv i64 {size}, {w.lanes}")) as vector:
            w.store_vector(kind, w.current(slot, vector), line, vector)


def write_clear(w: Writer, kind: Kind) -> None:
    """Forget a changed value."""
    slot = w.slot(kind)
    with w.each_touched(slot) as vector:
        w.line(f"store i8 0, ptr {w.let(f'getelementptr i8, ptr {slot.touched}, i64 {vector}')}")
    w.line(f"store i64 0, ptr {slot.count}")
