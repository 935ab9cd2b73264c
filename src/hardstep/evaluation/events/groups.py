"""Element-wise operations on changed values of one layout, as one stage.

Every vector that some input touched is computed anew; an output's vector that equals the base's is
not handed on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from hardstep.evaluation.events.program import (
    Room,
    Slot,
    Stage,
    Stride,
    Table,
    Word,
    slot_words,
)
from hardstep.evaluation.events.stages import each_listed, list_once
from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_expressions import emit_elementwise
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Access, Constant, Elementwise, Expr, Kind, Read
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.schedule import reachable

MOST_NODES = 400  # of one stage: LLVM's time grows faster than the text

MOST_NUMBERS = 8  # that a stage keeps in registers


@dataclass(eq=False)
class Group:
    """Expressions over the lanes of one layout."""

    level: float
    size: int
    graph: Graph = field(default_factory=Graph)
    reads: list[Slot | Table] = field(default_factory=list)  # as numbered by the graph
    known: dict[object, Expr] = field(default_factory=dict)
    outputs: list[tuple[Expr, Slot]] = field(default_factory=list)
    nodes: int = 0

    def read_slot(self, slot: Slot) -> Expr:
        """A changed value."""
        return self._read(slot, slot, Access.LANE, slot.kind)

    def read_table(self, access: Access, kind: Kind, table: Table) -> Expr:
        """Unchanged numbers: by lane, per example or shared by all, or one for all lanes."""
        return self._read(table.key, table, access, kind)

    def _read(self, key: object, what: Slot | Table, access: Access, kind: Kind) -> Expr:
        if key not in self.known:
            self.known[key] = self.graph.read(access, kind, len(self.reads))
            self.reads.append(what)
        return self.known[key]

    def stage(self, lanes: int) -> Stage:
        """The whole group."""
        needed = reachable([expr for expr, _ in self.outputs])
        # Inputs that no output needs would only cost time.
        used = {expr.table for expr in needed if isinstance(expr, Read)}
        inputs = {n: x for n, x in enumerate(self.reads) if n in used and isinstance(x, Slot)}
        tables = {n: x for n, x in enumerate(self.reads) if isinstance(x, Table)}
        words: list[Word] = []
        for slot in inputs.values():
            words += slot_words(slot)
        for table in tables.values():
            words += [table, Stride(table)]
        for _, slot in self.outputs:
            words += slot_words(slot)
        words += [Room(part, self) for part in ("mark", "work")] if len(inputs) > 1 else []
        text = partial(self._write, lanes, needed, inputs, list(tables))
        slots = [*inputs.values(), *(slot for _, slot in self.outputs)]
        key = ("elementwise", text("f"))
        return Stage(text, key, words, self.level, slots, self.size // lanes)

    def _write(
        self, lanes: int, needed: list[Expr], inputs: dict[int, Slot], tables: list[int], name: str
    ) -> str:
        w = Writer(lanes)
        slots = {n: w.slot(slot.kind) for n, slot in inputs.items()}
        lines = {n: w.line_of("%b") for n in tables}
        outputs = [w.slot(slot.kind) for _, slot in self.outputs]
        # Numbers that are the same in all lanes stay in registers, as far as there are some.
        same = [x for x in needed if isinstance(x, Read) and x.access is Access.FIRST]
        known = {id(x): _read_line(w, x, "0", lines[x.table]) for x in same[:MOST_NUMBERS]}
        with _each_changed(w, list(slots.values())) as vector:
            w.count_work(str(sum(not expr.is_leaf for expr in needed)))
            values = dict(known)
            waiting: dict[int, list[SlotNames]] = {}
            for (expr, _), slot in zip(self.outputs, outputs, strict=True):
                waiting.setdefault(id(expr), []).append(slot)
            for expr in needed:
                if id(expr) not in known:
                    values[id(expr)] = _emit(w, expr, vector, slots, lines, values)
                for slot in waiting.get(id(expr), []):
                    w.keep_if_new(slot, vector, values[id(expr)])
        return w.function(name) + "".join(f"\0{line}\n" for line in sorted(w.intrinsics))


@contextmanager
def _each_changed(w: Writer, slots: list[SlotNames]) -> Iterator[Value]:
    """Every vector that is touched in one of the slots, once."""
    if len(slots) == 1:
        with w.each_touched(slots[0]) as vector:
            yield vector
        return
    mark, work, count = w.room(), w.room(), w.zero()
    for slot in slots:
        with w.each_touched(slot) as vector:
            list_once(w, mark, work, count, vector)
    with each_listed(w, mark, work, count) as vector:
        yield vector


def _emit(
    w: Writer,
    expr: Expr,
    vector: Value,
    slots: dict[int, SlotNames],
    lines: dict[int, Value],
    values: dict[int, Value],
) -> Value:
    if isinstance(expr, Constant):
        return w.constant(expr.value, expr.kind)
    if isinstance(expr, Read):
        slot = slots.get(expr.table)
        if slot is None:
            return _read_line(w, expr, vector, lines[expr.table])
        if len(slots) == 1:  # touched wherever the loop comes
            return w.load_vector(slot.kind, slot.new, vector)
        return w.current(slot, vector)
    assert isinstance(expr, Elementwise)  # nothing else is built here
    return emit_elementwise(w, expr, [values[id(arg)] for arg in expr.args])


def _read_line(w: Writer, expr: Read, vector: Value, line: Value) -> Value:
    """Numbers of a table, at the lanes of a vector or one for all."""
    kind = expr.kind
    if expr.access is Access.LANE:
        return w.load_vector(kind, line, vector)
    number = w.let(f"load {kind.stored}, ptr {line}, align {kind.num_bytes}")
    if kind is Kind.I1:
        number = w.let(f"icmp ne i8 {number}, 0")
    return w.splat(number, kind)
