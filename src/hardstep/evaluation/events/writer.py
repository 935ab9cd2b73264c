"""Loops, conditions and changed values in LLVM assembly: what every stage is written with.

A stage is a function of its arguments `%a` (64-bit words: addresses, offsets, strides), a thread's
scratch memory `%s`, the candidate `%c` and the example `%b`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hardstep.evaluation.fused.emit_vectors import Value, Vectors
from hardstep.evaluation.fused.expressions import Kind

SLOT_WORDS = 6  # new values, whether touched, list, count; base values and their stride


@dataclass(frozen=True)
class SlotNames:
    """A changed value, as a stage names its parts."""

    kind: Kind
    new: Value
    touched: Value
    list: Value
    count: Value
    base: Value  # of this example


class Writer(Vectors):
    """One stage's function."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)
        self.words = 0  # arguments read so far

    # -- control ----------------------------------------------------------------------------

    @contextmanager
    def loop(self, first: Value, last: Value) -> Iterator[Value]:
        """For every i64 from `first` up to, not including, `last`."""
        counter = self.variable(Kind.I64, scalar=True)
        head, body, end = self.label("head"), self.label("body"), self.label("end")
        self.line(f"store i64 {first}, ptr {counter}")
        self.line(f"br label %{head}")
        self.block(head)
        number = self.let(f"load i64, ptr {counter}")
        inside = self.let(f"icmp slt i64 {number}, {last}")
        self.line(f"br i1 {inside}, label %{body}, label %{end}")
        self.block(body)
        yield number
        after = self.let(f"add i64 {number}, 1")
        self.line(f"store i64 {after}, ptr {counter}")
        self.line(f"br label %{head}")
        self.block(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Only where a scalar condition holds."""
        then, end = self.label("then"), self.label("end")
        self.line(f"br i1 {condition}, label %{then}, label %{end}")
        self.block(then)
        yield
        self.line(f"br label %{end}")
        self.block(end)

    @contextmanager
    def each_bit(self, mask: Value) -> Iterator[Value]:
        """For every lane whose bit is set, as an i64, lowest first."""
        integer = f"i{self.lanes}"
        left = self.name()
        self.head.append(f"  {left} = alloca {integer}")
        head, body, end = self.label("head"), self.label("body"), self.label("end")
        self.line(f"store {integer} {mask}, ptr {left}")
        self.line(f"br label %{head}")
        self.block(head)
        rest = self.let(f"load {integer}, ptr {left}")
        some = self.let(f"icmp ne {integer} {rest}, 0")
        self.line(f"br i1 {some}, label %{body}, label %{end}")
        self.block(body)
        self.intrinsics.add(f"declare {integer} @llvm.cttz.{integer}({integer}, i1)")
        lane = self.let(f"call {integer} @llvm.cttz.{integer}({integer} {rest}, i1 true)")
        yield self.let(f"zext {integer} {lane} to i64")
        below = self.let(f"sub {integer} {rest}, 1")
        self.line(f"store {integer} {self.let(f'and {integer} {rest}, {below}')}, ptr {left}")
        self.line(f"br label %{head}")
        self.block(end)

    # -- arguments --------------------------------------------------------------------------

    def word(self) -> Value:
        """The next argument."""
        place = self.let(f"getelementptr i64, ptr %a, i64 {self.words}")
        self.words += 1
        return self.let(f"load i64, ptr {place}")

    def pointer(self) -> Value:
        """The next argument, an address."""
        return self.let(f"inttoptr i64 {self.word()} to ptr")

    def room(self) -> Value:
        """The next argument, an offset in scratch memory, as an address."""
        return self.let(f"getelementptr i8, ptr %s, i64 {self.word()}")

    def line_of(self, index: Value) -> Value:
        """The next two arguments, a table and the bytes of its lines: the address of a line."""
        table, stride = self.pointer(), self.word()
        offset = self.let(f"mul i64 {stride}, {index}")
        return self.let(f"getelementptr i8, ptr {table}, i64 {offset}")

    def slot(self, kind: Kind) -> SlotNames:
        """The next six arguments, a changed value."""
        new, touched, listed, count = (self.room() for _ in range(4))
        return SlotNames(kind, new, touched, listed, count, self.line_of("%b"))

    # -- changed values -----------------------------------------------------------------------

    def read(self, typ: str, address: Value, index: Value) -> Value:
        """A scalar from an array."""
        place = self.let(f"getelementptr {typ}, ptr {address}, i64 {index}")
        return self.let(f"load {typ}, ptr {place}")

    def read_index(self, address: Value, index: Value) -> Value:
        """An i32 from an array, as an i64."""
        return self.let(f"sext i32 {self.read('i32', address, index)} to i64")

    def vector_at(self, kind: Kind, address: Value, vector: Value) -> Value:
        """The address of a vector, by its number."""
        return self.offset(kind, address, self.let(f"mul i64 {vector}, {self.lanes}"))

    def load_vector(self, kind: Kind, address: Value, vector: Value) -> Value:
        """A vector of an array, by its number."""
        return self.load(kind, self.vector_at(kind, address, vector), kind.num_bytes)

    def store_vector(self, kind: Kind, value: Value, address: Value, vector: Value) -> None:
        """Truth values are bytes in memory."""
        place = self.vector_at(kind, address, vector)
        if kind is Kind.I1:
            value = self.let(f"zext {self.type(Kind.I1)} {value} to <{self.lanes} x i8>")
            self.line(f"store <{self.lanes} x i8> {value}, ptr {place}, align 1")
        else:
            self.store(kind, value, place, kind.num_bytes)

    def is_touched(self, slot: SlotNames, vector: Value) -> Value:
        """Whether a vector of a slot holds new values."""
        return self.let(f"icmp ne i8 {self.read('i8', slot.touched, vector)}, 0")

    def current(self, slot: SlotNames, vector: Value) -> Value:
        """A vector of a slot: new where it was touched, else the base's."""
        array = self.let(
            f"select i1 {self.is_touched(slot, vector)}, ptr {slot.new}, ptr {slot.base}"
        )
        return self.load_vector(slot.kind, array, vector)

    def touch(self, slot: SlotNames, vector: Value) -> None:
        """Mark a vector that is not marked yet, and list it."""
        place = self.let(f"getelementptr i8, ptr {slot.touched}, i64 {vector}")
        self.line(f"store i8 1, ptr {place}")
        self.append(slot.list, slot.count, vector)

    def append(self, array: Value, count: Value, number: Value) -> None:
        """A number at the end of a list of i32."""
        num = self.let(f"load i64, ptr {count}")
        place = self.let(f"getelementptr i32, ptr {array}, i64 {num}")
        self.line(f"store i32 {self.let(f'trunc i64 {number} to i32')}, ptr {place}")
        self.line(f"store i64 {self.let(f'add i64 {num}, 1')}, ptr {count}")

    @contextmanager
    def each_touched(self, slot: SlotNames) -> Iterator[Value]:
        """For every touched vector of a slot, its number."""
        with self.loop("0", self.let(f"load i64, ptr {slot.count}")) as number:
            yield self.read_index(slot.list, number)

    def differs(self, kind: Kind, new: Value, old: Value) -> Value:
        """Lanes in which two vectors differ."""
        return self.compare("fcmp une" if kind.is_float else "icmp ne", kind, new, old)

    def keep_if_new(self, slot: SlotNames, vector: Value, new: Value) -> None:
        """Store a vector, unless it is the base's."""
        old = self.load_vector(slot.kind, slot.base, vector)
        with self.when(self.any(self.differs(slot.kind, new, old))):
            self.store_vector(slot.kind, new, slot.new, vector)
            self.touch(slot, vector)

    @contextmanager
    def each_event(self, slot: SlotNames) -> Iterator[tuple[Value, Value]]:
        """For every number of a slot that differs from the base: its place and new value."""
        with self.each_touched(slot) as vector:
            new = self.load_vector(slot.kind, slot.new, vector)
            old = self.load_vector(slot.kind, slot.base, vector)
            integer = f"i{self.lanes}"
            mask = self.differs(slot.kind, new, old)
            bits = self.let(f"bitcast {self.type(Kind.I1)} {mask} to {integer}")
            first = self.let(f"mul i64 {vector}, {self.lanes}")
            with self.each_bit(bits) as lane:
                place = self.let(f"add i64 {first}, {lane}")
                yield place, self.read(slot.kind.element, slot.new, place)

    def count_work(self, vectors: Value) -> None:
        """Add to the number of operations on vectors, which stands first in scratch memory."""
        total = self.let(f"add i64 {self.let('load i64, ptr %s')}, {vectors}")
        self.line(f"store i64 {total}, ptr %s")

    # -- the whole function -------------------------------------------------------------------

    def function(self, name: str) -> str:
        """The text."""
        head, body = "\n".join(self.head), "\n".join(self.body)
        signature = "ptr noalias %a, ptr %s, i64 %c, i64 %b"
        start = f"define internal void @{name}({signature}) #0 {{"
        return "\n".join([start, "entry:", head, body, "  ret void", "}", ""])
