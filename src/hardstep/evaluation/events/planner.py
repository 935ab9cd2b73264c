"""What is known while a slice is followed: who holds which changed value, and the stages so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.groups import MOST_NODES, Group
from hardstep.evaluation.events.joint import JointWriter
from hardstep.evaluation.events.layouts import Layout, Shape
from hardstep.evaluation.events.program import (
    Lookup,
    NextMember,
    PerTile,
    Program,
    Slot,
    Stage,
    Table,
    Word,
    slot_words,
)
from hardstep.evaluation.events.stages import (
    write_clear,
    write_leave,
)
from hardstep.evaluation.events.writer import Writer
from hardstep.evaluation.fused.expressions import KINDS, Access, Expr, Kind, Unfusable
from hardstep.evaluation.incremental.columns import Column, KnowsColumns
from hardstep.evaluation.trace.nodes import Node, Record

AnyWriter = TypeVar("AnyWriter", bound=Writer)
Text = Callable[[str], str]  # a function's text, by its name

MOST_CHUNKS = 1024  # groups of one level; more than any program has


@dataclass(frozen=True, eq=False)
class Held:
    """A value that a group computes and nobody has asked to keep."""

    expr: Expr
    group: Group
    index: int  # the recorded value it was computed as; views of it have other numbers
    layout: Layout


@dataclass(frozen=True, eq=False)
class Value:
    """A changed value: who holds its numbers, and what their places are called."""

    holder: Slot | Held
    layout: Layout

    @property
    def level(self) -> float:
        """The stage it can be read after."""
        return self.holder.level if isinstance(self.holder, Slot) else self.holder.group.level


def behind(slot: Slot) -> int:
    """The level of what a stage makes of a slot."""
    return int(slot.level) + 1


class KnowsEvents(KnowsColumns, Protocol):
    """What has to be known about an operator to follow events through it."""

    @property
    def events(self) -> "Follow | None":
        """Adds the stages that find what changes about a node's results."""

    @property
    def events_entry(self) -> "Follow | None":
        """Adds the stages by which a changed parameter of a node reaches the examples."""

    @property
    def enters_events(self) -> bool:
        """Whether `events` reads changed vectors of parameters."""

    @property
    def is_product(self) -> bool:
        """Whether parameters meet the examples in it."""

    @property
    def is_elementwise(self) -> bool:
        """Whether it acts number by number."""

    @property
    def sides(self) -> "Sides | None":
        """The sides of windows that stand side by side, or nothing."""


class Planner:
    """Collects the stages of a program."""

    def __init__(
        self,
        candidates: Candidates,
        written: Record,
        nodes: list[Node],
        span: Span,
        operators: Mapping[str, KnowsEvents],
    ) -> None:
        self.written, self.nodes, self.operators = written, nodes, operators
        self.base: Lookup = written.values.__getitem__
        self.weights: dict[int, Column] = {}  # changed units of parameters
        self.vectors: set[int] = set()  # parameters of which any number may change
        self._find_parameters(candidates, span)
        wide = any(value.dtype == torch.float64 for value in written.values)
        self.program = Program(0, 8 if wide else 16, operators)
        self.values: dict[int, Value] = {}
        self.later: set[int] = set()  # values that torch computes behind the cuts
        self.groups: dict[tuple[object, ...], list[Group]] = {}
        self.exported: dict[int, Slot] = {}  # by the id of an expression

    def _find_parameters(self, candidates: Candidates, span: Span) -> None:
        sources = self.written.sources
        local = candidates.local(Span(span.block, span.start, span.start + 1))
        if local is not None:
            for name, (unit, rows) in local.items():
                self.weights[sources[name]] = Column(0, unit, rows)
            return
        names = candidates.subspace.blocks[span.block].names
        self.vectors.update(sources[name] for name in names)
        if any(self.base(index).dim() != 1 for index in self.vectors):
            raise Unfusable("candidates change more than one unit")

    def start(self, examples: int) -> None:
        """Note how many examples there are, which has to be the same wherever changes enter."""
        if self.program.examples not in (0, examples):
            raise Unfusable("another number of examples")
        self.program.examples = examples

    def postpone(self, node: Node) -> None:
        """Leave a node to torch, behind the cuts."""
        self.program.after.append(node)
        self.later.update(node.outputs)

    def hold(self, node: Node, expr: Expr, group: Group, layout: Layout) -> None:
        """Say that a group computes a node's result."""
        out = node.outputs[0]
        self.values[out] = Value(Held(expr, group, out, layout), layout)

    # -- values -------------------------------------------------------------------------------

    def kind(self, index: int) -> Kind:
        """The kind of a recorded value."""
        found = KINDS.get(self.base(index).dtype)
        if found is None:
            raise Unfusable(f"numbers of type {self.base(index).dtype}")
        return found

    def new_slot(self, index: int, layout: Layout, level: float) -> Slot:
        """Room for a changed value."""
        key, size = ("base", index, layout.key), self.base(index).numel()
        base = Table(key, lambda values: layout.lay_out(values(index)), size)
        return self.keep(Slot(self.kind(index), layout, level, base))

    def keep(self, slot: Slot) -> Slot:
        """Note a slot."""
        self.program.slots.append(slot)
        return slot

    def slot(self, index: int) -> tuple[Slot, Layout]:
        """A changed value that another stage is to read."""
        return self.hand_on(self.values[index]), self.values[index].layout

    def hand_on(self, value: Value) -> Slot:
        """The slot of a value; one that a group holds gets one."""
        holder = value.holder
        if isinstance(holder, Slot):
            return holder
        known = self.exported.get(id(holder.expr))
        if known is None:
            known = self.new_slot(holder.index, holder.layout, holder.group.level)
            self.exported[id(holder.expr)] = known
            holder.group.outputs.append((holder.expr, known))
        return known

    def stage(
        self,
        name: str,
        write: Callable[[Writer], None],
        words: list[Word],
        level: float,
        slots: list[Slot],
        work: int = 0,
        detail: object = None,
        waits: bool = False,
    ) -> None:
        """One of the stages that are the same for every network."""
        text = self._text(write, lambda: Writer(self.program.lanes))
        key = (name, slots[0].kind, detail)
        self.program.stages.append(Stage(text, key, words, level, slots, work, waits))

    def joint_stage(
        self,
        name: str,
        write: Callable[[JointWriter], None],
        words: list[Word],
        level: float,
        slots: list[Slot],
        detail: object,
    ) -> None:
        """One that takes several candidates at once."""
        program = self.program
        text = self._text(write, lambda: JointWriter(program.lanes, program.together))
        key, words = (name, slots[0].kind, detail), [NextMember(), *words]
        program.stages.append(Stage(text, key, words, level, slots, is_joint=True))

    @staticmethod
    def _text(write: Callable[[AnyWriter], None], start: Callable[[], AnyWriter]) -> Text:
        def text(function: str) -> str:
            w = start()
            write(w)
            return w.function(function) + "".join(f"\0{line}\n" for line in sorted(w.intrinsics))

        return text

    def put(self, node: Node, slot: Slot) -> None:
        """Say which slot holds a node's result."""
        self.values[node.outputs[0]] = Value(slot, slot.layout)

    # -- groups ---------------------------------------------------------------------------------

    def group(self, operands: list[Value], layout: Layout) -> Group:
        """Where an operation belongs: behind what it reads, with others of its layout."""
        level = max(value.level for value in operands)
        chunks = self.groups.setdefault((int(level), layout.size), [])
        for group in chunks:
            if group.level >= level and group.nodes < MOST_NODES:
                return group
        chunks.append(Group(max(level, int(level) + len(chunks) / MOST_CHUNKS), layout.size))
        return chunks[-1]

    def read_changed(self, group: Group, value: Value) -> Expr:
        """A changed operand of a group."""
        holder = value.holder
        if isinstance(holder, Held) and holder.group is group:
            return holder.expr
        return group.read_slot(self.hand_on(value))

    def read_unchanged(self, group: Group, index: int, out: Tensor, layout: Layout) -> Expr:
        """An operand that does not change, where the result of an operation is laid out so."""
        value, kind, shape = self.base(index), self.kind(index), out.shape
        if value.numel() == 1:
            number = Table(("scalar", index), lambda values: values(index).reshape(1, 1))
            return group.read_table(Access.FIRST, kind, number)
        wide = value.expand(shape)
        shared = wide.stride(layout.axis) == 0 or shape[layout.axis] == 1

        def make(values: Lookup) -> Tensor:
            spread = values(index).expand(shape)
            return layout.lay_out(spread.narrow(layout.axis, 0, 1) if shared else spread)

        key = ("lanes", index, tuple(shape), layout.key, shared)
        return group.read_table(Access.LANE, kind, Table(key, make))

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> Program:
        """Cuts, the order of stages, and what is forgotten when."""
        program = self.program
        needed = {i for node in program.after for i in node.inputs} | {self.written.result}
        for index in sorted(needed & self.values.keys()):
            program.cuts[index] = self.slot(index)
        if not program.cuts:
            raise Unfusable("nothing that changes reaches the loss")
        for number, (slot, _) in enumerate(program.cuts.values()):
            words: list[Word] = [*slot_words(slot), PerTile(("out", number))]
            words += [PerTile(("flags", number)), program.examples, slot.size]
            self.stage("leave", partial(write_leave, kind=slot.kind), words, 1e9, [slot])
        for chunks in self.groups.values():
            for group in chunks:
                if group.outputs:
                    program.stages.append(group.stage(program.lanes))
        program.stages.sort(key=lambda stage: stage.level)
        self._clear()
        return program

    def _clear(self) -> None:
        """Every slot is forgotten behind its last reader."""
        ordered: list[Stage] = []
        last = {slot: n for n, stage in enumerate(self.program.stages) for slot in stage.slots}
        stages, self.program.stages = self.program.stages, []
        for number, stage in enumerate(stages):
            ordered.append(stage)
            for slot in dict.fromkeys(stage.slots):
                if last[slot] == number:
                    write = partial(write_clear, kind=slot.kind)
                    self.stage("clear", write, slot_words(slot), stage.level, [slot])
                    ordered.append(self.program.stages.pop())
        self.program.stages = ordered


Follow = Callable[[Planner, Node], None]
Sides = Callable[[Node, Lookup], Shape | None]
