"""Following a slice node by node: which stage computes what, and who holds a changed value."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.groups import MOST_NODES, Group
from hardstep.evaluation.events.layouts import (
    Layout,
    Shape,
    follow_view,
    pad,
    plain_order,
    planes_of_channels,
    rows_of_pixels,
    window_order,
)
from hardstep.evaluation.events.maps import find_sides, list_by
from hardstep.evaluation.events.program import (
    Entry,
    Fixed,
    Lookup,
    PerTile,
    Program,
    Slot,
    Spread,
    Stage,
    Table,
    Word,
    slot_words,
)
from hardstep.evaluation.events.stages import (
    write_clear,
    write_enter,
    write_enter_vector,
    write_leave,
    write_move,
)
from hardstep.evaluation.events.writer import Writer
from hardstep.evaluation.fused.expressions import KINDS, Expr, Unfusable
from hardstep.evaluation.fused.translate import build_elementwise
from hardstep.evaluation.fused.translate_elementwise import BUILD
from hardstep.evaluation.ops.columns import Column, column_rule
from hardstep.evaluation.trace.record import Node, Record, Ref

VIEWS = {
    "view", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "select", "slice",
    "split", "split_with_sizes", "unbind", "alias", "detach",
}  # fmt: skip
MOST_CHUNKS = 1024  # groups of one level; more than any program has
_BY_VECTOR = {"native_batch_norm"}
Vector = Callable[[Lookup], Tensor]  # a number per channel
Change = Callable[[dict[int, Tensor]], Tensor]  # the same for every candidate
MOVES = {"cat", "stack", "index_select", "flip", "constant_pad_nd", "expand"}


@dataclass(frozen=True, eq=False)
class Held:
    """A value that a group computes and nobody has asked to keep."""

    expr: Expr
    group: Group


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


class Planner:
    """Follows a slice node by node."""

    def __init__(
        self,
        candidates: Candidates,
        written: Record,
        nodes: list[Node],
        span: Span,
        follow: "dict[str, Follow]",
    ) -> None:
        self.written, self.nodes, self.special = written, nodes, follow
        self.base: Lookup = written.values.__getitem__
        self.weights: dict[int, Column] = {}  # changed units of parameters
        self.vectors: set[int] = set()  # parameters of which any number may change
        self._find_parameters(candidates, span)
        wide = any(value.dtype == torch.float64 for value in written.values)
        self.program = Program(0, 8 if wide else 16)
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

    # -- nodes --------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Sort a node: parameters alone, an entry, something to follow, or something for torch."""
        inputs = set(node.inputs)
        if inputs & self.later:
            self._postpone(node)
        elif inputs & self.weights.keys() and not inputs & self.values.keys():
            self._follow_parameters(node)
        elif inputs & self.weights.keys() or inputs & self.vectors and node.name not in _BY_VECTOR:
            raise Unfusable(f"{node.name}: a changed parameter is used in an unusual way")
        else:
            try:
                self._follow(node)
            except Unfusable:
                self._postpone(node)

    def _postpone(self, node: Node) -> None:
        if not self.weights.keys().isdisjoint(node.inputs):
            raise Unfusable(f"{node.name} of a parameter and of what it changed")
        self.program.after.append(node)
        self.later.update(node.outputs)

    def _follow_parameters(self, node: Node) -> None:
        if node.name == "convolution":
            self._enter(node)
            return
        change = column_rule(node, self.weights, self.base)
        if change is None or node.name in ("mm", "addmm"):
            raise Unfusable(f"{node.name} of a parameter")
        self.weights[node.outputs[0]] = change
        self.program.before.append(node)

    def _follow(self, node: Node) -> None:
        if node.name in VIEWS:
            self._view(node)
        elif node.name in MOVES:
            self._move(node)
        elif node.name in self.special:
            self.special[node.name](self, node)
        elif node.name in BUILD:
            self._elementwise(node)
        else:
            raise Unfusable(node.name)

    # -- entries ------------------------------------------------------------------------------

    def _enter(self, node: Node) -> None:
        """A convolution with a changed filter: one new channel."""
        out = self.base(node.outputs[0])
        change = column_rule(node, self.weights, self.base)
        if change is None or change.axis != 1 or out.dim() < 3:
            raise Unfusable("the first changed value is not a channel of a picture")
        if self.program.examples not in (0, out.shape[0]):
            raise Unfusable("another number of examples")
        self.program.examples = out.shape[0]
        order, length = self._order(node.outputs[0], tuple(out.shape[2:]))
        layout = planes_of_channels(tuple(out.shape[1:]), order, length)
        slot = self.new_slot(node.outputs[0], layout, 0)
        self.program.entries.append(Entry(node, slot, order, length))
        number = len(self.program.entries) - 1
        words: list[Word] = [*slot_words(slot), PerTile(("column", number)), PerTile(("units",))]
        words += [self.program.examples, length]
        self.stage("enter", partial(write_enter, kind=slot.kind), words, 0, [slot])
        self.values[node.outputs[0]] = Value(slot, layout)

    def _order(self, index: int, pixels: Shape) -> tuple[Tensor, int]:
        """Pixels in the order of the first maximum over windows that reads them."""
        reached = {index}
        for node in self.nodes:
            if reached.isdisjoint(node.inputs):
                continue
            sides = find_sides(node, self.base)
            if sides is not None and self.base(node.inputs[0]).shape[2:] == pixels:
                return window_order(pixels, sides, self.program.lanes)
            if node.name in BUILD and self.base(node.outputs[0]).shape[2:] == pixels:
                reached.update(node.outputs)
        return plain_order(pixels, self.program.lanes)

    # -- values -------------------------------------------------------------------------------

    def kind(self, index: int) -> str:
        """The kind of a recorded value."""
        found = KINDS.get(self.base(index).dtype)
        if found is None:
            raise Unfusable(f"numbers of type {self.base(index).dtype}")
        return found

    def new_slot(self, index: int, layout: Layout, level: float) -> Slot:
        """Room for a changed value."""
        base = Table(("base", index, layout.key), lambda values: layout.lay_out(values(index)))
        return self._keep_slot(Slot(self.kind(index), layout, level, base))

    def _keep_slot(self, slot: Slot) -> Slot:
        self.program.slots.append(slot)
        return slot

    def spread_vector(self, name: str, layout: Layout, old: Vector, new: Change, key: int) -> Slot:
        """A number per channel, which candidates change, at every pixel of a value.

        Args:
            name: Of what it is.
            layout: Of the value, rows of pixels.
            old: The base's numbers.
            new: Those of candidates, from changed parameters.
            key: Tells vectors of one name apart.
        """
        shape, lanes = layout.places.shape, self.program.lanes
        row, kind = pad(shape[0], lanes), KINDS[old(self.base).dtype]

        def spread(values: Lookup) -> Tensor:
            line = old(values).reshape(1, -1, *[1] * (len(shape) - 1))
            return layout.lay_out(line.expand(1, *shape))

        table = Table((name, key, layout.key), spread)
        slot = self._keep_slot(Slot(kind, layout, 0, table))
        number = len(self.program.spreads)
        self.program.spreads.append(Spread(new, row))
        words: list[Word] = [*slot_words(slot), PerTile(("spread", number))]
        words += [row // lanes, layout.size // row]
        self.stage("vector", partial(write_enter_vector, kind=kind), words, 0, [slot])
        return slot

    def slot(self, index: int) -> tuple[Slot, Layout]:
        """A changed value that another stage is to read."""
        value = self.values[index]
        holder = value.holder
        if isinstance(holder, Slot):
            return holder, value.layout
        known = self.exported.get(id(holder.expr))
        if known is None:
            known = self.new_slot(index, value.layout, holder.group.level)
            self.exported[id(holder.expr)] = known
            holder.group.outputs.append((holder.expr, known))
        return known, value.layout

    def stage(
        self,
        name: str,
        write: Callable[[Writer], None],
        words: list[Word],
        level: float,
        slots: list[Slot],
        work: int = 0,
        detail: object = None,
    ) -> None:
        """One of the stages that are the same for every network."""
        lanes = self.program.lanes

        def text(function: str) -> str:
            w = Writer(lanes)
            write(w)
            return w.function(function) + "".join(f"\0{line}\n" for line in sorted(w.intrinsics))

        key = (name, slots[0].kind, detail)
        self.program.stages.append(Stage(text, key, words, level, slots, work))

    def put(self, node: Node, slot: Slot, output: int = 0) -> None:
        """Say who holds a node's result."""
        self.values[node.outputs[output]] = Value(slot, slot.layout)

    # -- views, moves ---------------------------------------------------------------------------

    def _view(self, node: Node) -> None:
        (index,) = (i for i in node.inputs)
        value = self.values[index]

        def view(numbers: Tensor) -> Any:
            args, kwargs = node.filled(lambda _: numbers)
            return node.func(*args, **kwargs)

        layouts = follow_view(value.layout, self.program.examples, view)
        if len(layouts) != len(node.outputs):
            raise Unfusable(f"{node.name} mixes examples")
        for out, layout in zip(node.outputs, layouts, strict=True):
            self.values[out] = Value(value.holder, layout)

    def _move(self, node: Node) -> None:
        raise Unfusable(node.name)

    def align(self, index: int, layout: Layout) -> Value:
        """A changed value at the places of another layout."""
        value = self.values[index]
        if value.layout.key == layout.key:
            return value
        if value.layout.places.shape != layout.places.shape or value.layout.axis != layout.axis:
            raise Unfusable("changed operands of different shapes")
        source, named = self.slot(index)
        moved = self.new_slot(index, layout, behind(source))
        old = named.places.flatten()
        order = old.argsort(stable=True)
        starts = Fixed(list_by(old[order], named.size))
        targets = Fixed(layout.places.flatten()[order].int())
        words: list[Word] = [*slot_words(source), *slot_words(moved), starts, targets]
        write = partial(write_move, kind=source.kind)
        self.stage("move", write, words, moved.level - 0.5, [source, moved])
        return Value(moved, layout)

    # -- element-wise ---------------------------------------------------------------------------

    def _elementwise(self, node: Node) -> None:
        out = self.base(node.outputs[0])
        moved = [index for index in dict.fromkeys(node.inputs) if index in self.values]
        if any(self.base(index).shape != out.shape for index in moved):
            raise Unfusable(f"{node.name}: a changed operand is spread")
        layouts = [self.values[index].layout for index in moved]
        if not all(layout.is_unique for layout in layouts):
            raise Unfusable(f"{node.name}: an operand was expanded")
        layout = self._choose_layout(layouts)
        found = {index: self.align(index, layout) for index in moved}
        group = self._group(list(found.values()), layout)
        group.nodes += 1

        def operand(ref: Ref) -> Expr:
            if ref.index in found:
                return self._read(group, ref.index, found[ref.index])
            return self._unchanged(group, ref.index, out, layout)

        expr = build_elementwise(node, self.base, group.graph, operand)
        self.values[node.outputs[0]] = Value(Held(expr, group), layout)

    @staticmethod
    def _choose_layout(layouts: list[Layout]) -> Layout:
        """Rows of pixels where there are any: what is behind a convolution changes most."""
        return min(layouts, key=lambda layout: layout.size)

    def _group(self, operands: list[Value], layout: Layout) -> Group:
        """Where an operation belongs: behind what it reads, with others of its layout."""
        level = max(value.level for value in operands)
        chunks = self.groups.setdefault((int(level), layout.size), [])
        for group in chunks:
            if group.level >= level and group.nodes < MOST_NODES:
                return group
        chunks.append(Group(max(level, int(level) + len(chunks) / MOST_CHUNKS), layout.size))
        return chunks[-1]

    def _unchanged(self, group: Group, index: int, out: Tensor, layout: Layout) -> Expr:
        value, kind, shape = self.base(index), self.kind(index), out.shape
        if value.numel() == 1:
            number = Table(("scalar", index), lambda values: values(index).reshape(1, 1))
            return group.read_table("scalar", kind, number)
        wide = value.expand(shape)
        shared = wide.stride(layout.axis) == 0 or shape[layout.axis] == 1

        def make(values: Lookup) -> Tensor:
            spread = values(index).expand(shape)
            return layout.lay_out(spread.narrow(layout.axis, 0, 1) if shared else spread)

        key = ("lanes", index, tuple(shape), layout.key, shared)
        return group.read_table("lanes", kind, Table(key, make))

    def scale_channels(
        self, node: Node, index: int, scale: Vector, shift: Vector, moved: tuple[Change, ...]
    ) -> None:
        """A value times a number per channel, plus another.

        Args:
            node: The operation.
            index: The value, changed or not.
            scale: The factors.
            shift: What is added.
            moved: Both for every candidate, if parameters among them change.
        """
        shape, kind = self.base(index).shape, self.kind(index)
        self.program.examples = self.program.examples or shape[0]
        if index in self.values:
            layout = self.values[index].layout
        else:
            layout = rows_of_pixels(tuple(shape[1:]), self.program.lanes)
        slots = [
            self.spread_vector(name, layout, old, new, node.outputs[0])
            for name, old, new in zip(("scale", "shift"), (scale, shift), moved, strict=False)
        ]
        operands = [Value(slot, layout) for slot in slots]
        operands += [self.values[index]] if index in self.values else []
        group = self._group(operands, layout)
        group.nodes += 2
        g = group.graph
        if index in self.values:
            old = self._read(group, index, self.values[index])
        else:
            old = self._unchanged(group, index, self.base(index), layout)
        if slots:
            factor, add = (group.read_slot(slot) for slot in slots)
        else:
            factor, add = (
                self._per_channel(group, name, make, node.outputs[0], kind, layout)
                for name, make in (("scale", scale), ("shift", shift))
            )
        expr = g.apply("add", g.apply("mul", old, factor), add)
        self.values[node.outputs[0]] = Value(Held(expr, group), layout)

    @staticmethod
    def _per_channel(
        group: Group, name: str, make: Vector, key: int, kind: str, layout: Layout
    ) -> Expr:
        shape = layout.places.shape

        def spread(values: Lookup) -> Tensor:
            line = make(values).reshape(1, -1, *[1] * (len(shape) - 1))
            return layout.lay_out(line.expand(1, *shape))

        return group.read_table("lanes", kind, Table((name, key, layout.key), spread))

    def _read(self, group: Group, index: int, value: Value) -> Expr:
        """A changed operand in a group."""
        holder = value.holder
        if isinstance(holder, Slot):
            return group.read_slot(holder)
        return holder.expr if holder.group is group else group.read_slot(self.slot(index)[0])

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
