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


def bounds(w: Writer, starts: Value, key: Value) -> tuple[Value, Value]:
    """Where the list of a key begins and ends."""
    return w.read_index(starts, key), w.read_index(starts, w.let(f"add i64 {key}, 1"))


def copy_base(w: Writer, slot: SlotNames, first: Value, vectors: int) -> None:
    """New values that are the base's, so far."""
    for number in range(vectors):
        vector = w.let(f"add i64 {first}, {number}")
        w.store_vector(slot.kind, w.load_vector(slot.kind, slot.base, vector), slot.new, vector)
        w.touch(slot, vector)


def write_move(w: Writer, kind: Kind) -> None:
    """Numbers that stand elsewhere from here on, each at any number of places."""
    source, target = w.slot(kind), w.slot(kind)
    starts, targets = w.pointer(), w.pointer()
    with w.each_event(source) as (place, _):
        new = w.read(kind.stored, source.new, place)
        with each_target(w, target, starts, place, targets) as (_, at):
            w.line(f"store {kind.stored} {new}, ptr {w.offset(kind, target.new, at)}")


@contextmanager
def each_target(
    w: Writer, target: SlotNames, starts: Value, place: Value, targets: Value
) -> Iterator[tuple[Value, Value]]:
    """The places that a place reaches, in vectors that hold new values."""
    begin, end = bounds(w, starts, place)
    w.count_work(w.let(f"sub i64 {end}, {begin}"))
    with w.loop(begin, end) as number:
        at = w.read_index(targets, number)
        vector = w.let(f"udiv i64 {at}, {w.lanes}")
        with w.when(w.let(f"xor i1 {w.is_touched(target, vector)}, true")):
            copy_base(w, target, vector, 1)
        yield number, at


def write_pool(w: Writer, kind: Kind, each: tuple[int, int], divisions: int) -> None:
    """The largest of several vectors, or their mean, where one of them was touched.

    Args:
        w: Of the stage.
        kind: Of the numbers.
        each: How many targets every vector has, and how many members every target; 0 if it differs.
        divisions: By how many numbers a sum is divided one after the other; 0 for maxima.
    """
    source, target = w.slot(kind), w.slot(kind)
    starts, targets, member_starts, members = (w.pointer() for _ in range(4))
    mark, work, count = w.room(), w.room(), w.zero()
    sizes = [w.pointer() for _ in range(divisions)]
    with (
        w.each_touched(source) as vector,
        w.loop(*_bounds_of(w, starts, vector, each[0])) as number,
    ):
        list_once(w, mark, work, count, w.read_index(targets, number))
    with each_listed(w, mark, work, count) as out:
        first, last = _bounds_of(w, member_starts, out, each[1])
        w.count_work(w.let(f"sub i64 {last}, {first}"))
        found = w.variable(kind)
        w.store(kind, w.current(source, w.read_index(members, first)), found, 64)
        with w.loop(w.let(f"add i64 {first}, 1"), last) as number:
            new = w.current(source, w.read_index(members, number))
            old = w.load(kind, found, 64)
            joined = (
                w.binary("fadd", kind, old, new)
                if divisions
                else emit_extreme(w, Fn.MAX, kind, new, old)
            )
            w.store(kind, joined, found, 64)
        result = w.load(kind, found, 64)
        for size in sizes:
            result = w.binary("fdiv", kind, result, w.load_vector(kind, size, out))
        w.keep_if_new(target, out, result)


def _bounds_of(w: Writer, starts: Value, key: Value, each: int) -> tuple[Value, Value]:
    """Where the list of a key begins and ends; lists of one known length need no look-up."""
    if not each:
        return bounds(w, starts, key)
    first = w.let(f"mul nsw i64 {key}, {each}")
    return first, w.let(f"add nsw i64 {first}, {each}")


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
