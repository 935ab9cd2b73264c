"""Loops, conditions and changed values in LLVM assembly: what every stage is written with.

A stage is a function of its arguments `%a` (64-bit words: addresses, offsets, strides), a thread's
scratch memory `%s`, that which a candidate's examples share `%g`, the candidate `%c` and the
example `%b`. A joint stage is called once for a group of candidates, the members, of which `%c` is
the first; each has arguments of its own.
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
    count: Value  # of the list, in a register until the stage ends
    base: Value  # of this example


class Writer(Vectors):
    """One stage's function."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes)
        self.arguments = "%a"
        self.words = 0  # arguments read so far
        self.kept: list[tuple[Value, Value]] = []  # variables, and where they are stored in the end
        self.work = [self.zero()]  # operations on vectors, of every member

    def zero(self) -> Value:
        """An integer variable that starts as 0."""
        variable = self.variable(Kind.I64, scalar=True)
        self.head.append(f"  store i64 0, ptr {variable}")
        return variable

    # -- control ----------------------------------------------------------------------------

    @contextmanager
    def loop(self, first: Value, last: Value) -> Iterator[Value]:
        """For every i64 from `first` up to, not including, `last`."""
        counter = self.variable(Kind.I64, scalar=True)
        self.line(f"store i64 {first}, ptr {counter}")
        with self.advance(counter, last) as number:
            yield number

    @contextmanager
    def advance(self, counter: Value, last: Value, step: int = 1) -> Iterator[Value]:
        """From a counter's number on, while a whole step fits before `last`."""
        head, body, end = self.label("head"), self.label("body"), self.label("end")
        self.line(f"br label %{head}")
        self.block(head)
        number = self.let(f"load i64, ptr {counter}")
        after = self.let(f"add i64 {number}, {step}")
        inside = self.let(f"icmp sle i64 {after}, {last}")
        self.line(f"br i1 {inside}, label %{body}, label %{end}")
        self.block(body)
        yield number
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
        place = self.let(f"getelementptr i64, ptr {self.arguments}, i64 {self.words}")
        self.words += 1
        return self.let(f"load i64, ptr {place}")

    def pointer(self) -> Value:
        """The next argument, an address."""
        return self.let(f"inttoptr i64 {self.word()} to ptr")

    def room(self) -> Value:
        """The next argument, an offset in scratch memory, as an address."""
        return self.let(f"getelementptr i8, ptr %s, i64 {self.word()}")

    def shared(self) -> Value:
        """The next argument, an offset in what examples share, as an address."""
        return self.let(f"getelementptr i8, ptr %g, i64 {self.word()}")

    def line_of(self, index: Value) -> Value:
        """The next two arguments, a table and the bytes of its lines: the address of a line."""
        table, stride = self.pointer(), self.word()
        offset = self.let(f"mul i64 {stride}, {index}")
        return self.let(f"getelementptr i8, ptr {table}, i64 {offset}")

    def slot(self, kind: Kind) -> SlotNames:
        """The next six arguments, a changed value."""
        new, touched, listed, count = (self.room() for _ in range(4))
        length = self.variable(Kind.I64, scalar=True)
        self.line(f"store i64 {self.let(f'load i64, ptr {count}')}, ptr {length}")
        self.kept.append((length, count))
        return SlotNames(kind, new, touched, listed, length, self.line_of("%b"))

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

    def difference(self, slot: SlotNames, vector: Value, named: Value) -> tuple[Value, Value]:
        """How a touched vector of floating-point numbers changed, and the bits of its events.

        Args:
            slot: What changed.
            vector: Its number.
            named: The bits of lanes that hold something, an i32 for each vector.
        """
        new = self.load_vector(slot.kind, slot.new, vector)
        old = self.load_vector(slot.kind, slot.base, vector)
        known = self.let(f"trunc i32 {self.read('i32', named, vector)} to i{self.lanes}")
        bits = self.let(f"and i{self.lanes} {self.event_bits(slot.kind, new, old)}, {known}")
        return self.binary("fsub", slot.kind, new, old), bits

    def event_bits(self, kind: Kind, new: Value, old: Value) -> Value:
        """A bit per lane: whether two vectors differ there."""
        mask = self.differs(kind, new, old)
        return self.let(f"bitcast {self.type(Kind.I1)} {mask} to i{self.lanes}")

    def count_bits(self, bits: Value) -> Value:
        """How many are set, an i64."""
        integer = f"i{self.lanes}"
        self.intrinsics.add(f"declare {integer} @llvm.ctpop.{integer}({integer})")
        number = self.let(f"call {integer} @llvm.ctpop.{integer}({integer} {bits})")
        return self.let(f"zext {integer} {number} to i64")

    @contextmanager
    def each_event(self, slot: SlotNames) -> Iterator[tuple[Value, Value]]:
        """For every number of a slot that differs from the base: its place and new value."""
        with self.each_touched(slot) as vector:
            new = self.load_vector(slot.kind, slot.new, vector)
            old = self.load_vector(slot.kind, slot.base, vector)
            first = self.let(f"mul i64 {vector}, {self.lanes}")
            with self.each_bit(self.event_bits(slot.kind, new, old)) as lane:
                place = self.let(f"add i64 {first}, {lane}")
                yield place, self.read(slot.kind.element, slot.new, place)

    def count_work(self, vectors: Value, member: int = 0) -> None:
        """Add to a member's operations on vectors; these numbers stand first in scratch memory."""
        self.add_to(self.work[member], vectors)

    def add_to(self, variable: Value, number: Value) -> None:
        """Add to an integer variable."""
        total = self.let(f"add i64 {self.let(f'load i64, ptr {variable}')}, {number}")
        self.line(f"store i64 {total}, ptr {variable}")

    # -- the whole function -------------------------------------------------------------------

    def function(self, name: str) -> str:
        """The text."""
        for variable, address in self.kept:
            self.line(f"store i64 {self.let(f'load i64, ptr {variable}')}, ptr {address}")
        for member, work in enumerate(self.work):
            address = self.let(f"getelementptr i64, ptr %s, i64 {member}")
            before, own = (self.let(f"load i64, ptr {place}") for place in (address, work))
            self.line(f"store i64 {self.let(f'add i64 {before}, {own}')}, ptr {address}")
        head, body = "\n".join(self.head), "\n".join(self.body)
        signature = "ptr noalias %a, ptr %s, ptr %g, i64 %c, i64 %b"
        start = f"define internal void @{name}({signature}) #0 {{"
        return "\n".join([start, "entry:", head, body, "  ret void", "}", ""])
