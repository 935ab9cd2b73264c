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
from hardstep.evaluation.fused.emit_vectors import BYTES, ELEMENT, Value
from hardstep.evaluation.fused.expressions import Expr, Graph
from hardstep.evaluation.fused.schedule import reachable

MOST_NODES = 400  # of one stage: LLVM's time grows faster than the text


@dataclass(eq=False)
class Group:
    """Expressions over the lanes of one layout."""

    level: float
    size: int
    graph: Graph = field(default_factory=Graph)
    inputs: list[Slot] = field(default_factory=list)
    tables: list[tuple[str, str, Table]] = field(default_factory=list)  # leaf, kind
    known: dict[object, Expr] = field(default_factory=dict)
    outputs: list[tuple[Expr, Slot]] = field(default_factory=list)
    nodes: int = 0

    def read_slot(self, slot: Slot) -> Expr:
        """A changed value."""
        if slot not in self.known:
            self.known[slot] = self.graph.leaf("changed", slot.kind, len(self.inputs))
            self.inputs.append(slot)
        return self.known[slot]

    def read_table(self, leaf: str, kind: str, table: Table) -> Expr:
        """Unchanged numbers: `lanes` per example or shared by all, `scalar` one for all lanes."""
        if table.key not in self.known:
            self.known[table.key] = self.graph.leaf(leaf, kind, len(self.tables))
            self.tables.append((leaf, kind, table))
        return self.known[table.key]

    def stage(self, lanes: int) -> Stage:
        """The whole group."""
        needed = reachable([expr for expr, _ in self.outputs])
        # Inputs that no output needs would only cost time.
        used = {expr.data for expr in needed if expr.op == "changed"}
        words: list[Word] = []
        for number, slot in enumerate(self.inputs):
            words += slot_words(slot) if number in used else []
        for _, _, table in self.tables:
            words += [table, Stride(table)]
        for _, slot in self.outputs:
            words += slot_words(slot)
        words += [Room(part, self) for part in ("mark", "work")] if len(used) > 1 else []
        text = partial(self._write, lanes, needed, used)
        slots = [self.inputs[n] for n in sorted(used)] + [slot for _, slot in self.outputs]
        key = ("elementwise", text("f"))
        return Stage(text, key, words, self.level, slots, self.size // lanes)

    def _write(self, lanes: int, needed: list[Expr], used: set[int], name: str) -> str:
        w = Writer(lanes)
        slots = {n: w.slot(slot.kind) for n, slot in enumerate(self.inputs) if n in used}
        tables = [w.line_of("%b") for _ in self.tables]
        outputs = [w.slot(slot.kind) for _, slot in self.outputs]
        with _each_changed(w, list(slots.values())) as vector:
            w.count_work(str(sum(not expr.is_leaf for expr in needed)))
            values: dict[int, Value] = {}
            waiting: dict[int, list[SlotNames]] = {}
            for (expr, _), slot in zip(self.outputs, outputs, strict=True):
                waiting.setdefault(id(expr), []).append(slot)
            for expr in needed:
                values[id(expr)] = _emit(w, expr, vector, slots, tables, values)
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
    tables: list[Value],
    values: dict[int, Value],
) -> Value:
    if expr.op == "changed":
        slot = slots[expr.data]  # the only one is touched wherever the loop comes
        return (
            w.load_vector(slot.kind, slot.new, vector)
            if len(slots) == 1
            else w.current(slot, vector)
        )
    if expr.op == "lanes":
        return w.load_vector(expr.kind, tables[expr.data], vector)
    if expr.op == "scalar":
        stored = "i8" if expr.kind == "i1" else ELEMENT[expr.kind]
        number = w.let(f"load {stored}, ptr {tables[expr.data]}, align {BYTES[expr.kind]}")
        if expr.kind == "i1":
            number = w.let(f"icmp ne i8 {number}, 0")
        return w.splat(number, expr.kind)
    if expr.op == "constant":
        if expr.kind == "i64":
            return w.constant(int(expr.data), expr.kind)
        return w.constant(expr.data == "True" if expr.kind == "i1" else float(expr.data), expr.kind)
    return emit_elementwise(w, expr, [values[id(arg)] for arg in expr.args])
