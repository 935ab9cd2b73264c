"""A program as machine code, with the numbers of a step, run tile by tile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.program import (
    Entry,
    Fixed,
    PerTile,
    Program,
    Room,
    Stride,
    Table,
    Word,
)
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.emit_vectors import BYTES
from hardstep.evaluation.incremental.changes import Change, Examples, Pairs, Stacked
from hardstep.evaluation.ops.columns import Column, column_rule
from hardstep.evaluation.trace.record import Node, Record, Refused

ALIGN = 64
LANES = 16  # of a plain forward pass, in single precision


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and where things are in its scratch memory."""

    text: str
    scratch: int
    rooms: Mapping[tuple[str, object], int]


def write_code(program: Program) -> Code:
    """The whole module: a function per kind of stage, and the loops that call them."""
    names: dict[tuple[object, ...], str] = {}
    functions: list[str] = []
    declarations: set[str] = set()
    for stage in program.stages:
        if stage.key in names:
            continue
        names[stage.key] = f"f{len(names)}"
        parts = stage.text(names[stage.key]).split("\0")
        functions.append(parts[0])
        declarations.update(part.strip() for part in parts[1:])
    rooms, zeroed, total = _place_rooms(program)
    calls, word = [], 0
    for stage in program.stages:
        calls.append(f"  %a{word} = getelementptr i64, ptr %args, i64 {word}")
        calls.append(f"  call void @{names[stage.key]}(ptr %a{word}, ptr %scratch, i64 %c, i64 %b)")
        word += len(stage.words)
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" '
    attributes += '"min-legal-vector-width"="512" }'
    text = "\n".join(
        [
            *functions,
            "define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, "
            "ptr %scratch) #0 {",
            "entry:",
            "  %args = load ptr, ptr %tables",
            "  %second = getelementptr ptr, ptr %tables, i64 1",
            "  %work = load ptr, ptr %second",
            f"  call void @llvm.memset.p0.i64(ptr %scratch, i8 0, i64 {zeroed}, i1 false)",
            "  br label %candidates",
            "candidates:",
            "  %c = phi i64 [ %first, %entry ], [ %c_next, %candidate_end ]",
            "  store i64 0, ptr %scratch",
            "  br label %examples",
            "examples:",
            "  %b = phi i64 [ 0, %candidates ], [ %b_next, %examples ]",
            *calls,
            "  %b_next = add i64 %b, 1",
            "  %b_done = icmp sge i64 %b_next, %rows",
            "  br i1 %b_done, label %candidate_end, label %examples",
            "candidate_end:",
            "  %done = load i64, ptr %scratch",
            "  %work_at = getelementptr i64, ptr %work, i64 %c",
            "  store i64 %done, ptr %work_at",
            "  %c_next = add i64 %c, 1",
            "  %c_done = icmp sge i64 %c_next, %last",
            "  br i1 %c_done, label %end, label %candidates",
            "end:",
            "  ret void",
            "}",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            *sorted(declarations),
            attributes,
            "",
        ]
    )
    return Code(text, total, rooms)


def _place_rooms(program: Program) -> tuple[dict[tuple[str, object], int], int, int]:
    """Offsets in scratch memory; what must start as zero comes first."""
    rooms: dict[tuple[str, object], int] = {}
    sizes: dict[tuple[str, object], int] = {}
    for slot in program.slots:
        vectors = slot.size // program.lanes
        sizes["touched", slot] = vectors
        sizes["count", slot] = 8
        sizes["new", slot] = slot.size * BYTES[slot.kind]
        sizes["list", slot] = 4 * vectors
    for stage in program.stages:
        for word in stage.words:
            if isinstance(word, Room) and (word.part, word.owner) not in sizes:
                needed = {"mark": stage.work, "work": 4 * stage.work, "count": 8}
                sizes[word.part, word.owner] = needed[word.part]
    place = ALIGN  # the first word counts operations
    for zero in (True, False):
        for key, size in sizes.items():
            if (key[0] in ("touched", "count", "mark")) == zero:
                rooms[key] = place
                place += -(-size // ALIGN) * ALIGN
        if zero:
            zeroed = place
    return rooms, zeroed, place


class Tables:
    """Tables that a step makes of recorded values, shared by its blocks."""

    def __init__(self, written: Record) -> None:
        self.written = written
        self.made: dict[object, Tensor] = {}

    def get(self, table: Table) -> Tensor:
        """A table; made when it is first asked for."""
        if table.key not in self.made:
            self.made[table.key] = table.make(self.written.values.__getitem__).contiguous()
        return self.made[table.key]


    def is_finite(self, table: Table) -> bool:
        """Whether its numbers are finite, all of them (or so large that their sum is not)."""
        key = ("finite", table.key)
        if key not in self.made:
            self.made[key] = self.get(table).sum()
        return bool(self.made[key].isfinite())


class Found(NamedTuple):
    """What a tile's candidates change at the cuts."""

    env: dict[int, Change]
    pairs: Pairs | None  # which examples of which candidates; nothing if none
    work: Tensor  # (n,) operations on vectors that each candidate took


def count_work(written: Record) -> float:
    """Operations on vectors of a plain forward pass: multiply-adds, or numbers made."""
    total = 0
    for node in written.nodes:
        for index in node.outputs:
            total += written.values[index].numel() * _depth(node, written) if index >= 0 else 0
    return total / LANES


def _depth(node: Node, written: Record) -> int:
    """Multiply-adds behind one number of a result."""
    if node.name == "convolution":
        return int(written.values[node.args[1].index][0].numel())
    if node.name in ("mm", "addmm", "bmm"):
        return int(written.values[node.inputs[-2]].shape[-1])
    return 1


class EventKernel:
    """One block in one step."""

    def __init__(self, program: Program, code: Code, tables: Tables) -> None:
        self.program, self.code, self.tables = program, code, tables
        self.base = tables.written.values.__getitem__
        self._check_finite()
        self.fixed = [self._word(word) for stage in program.stages for word in stage.words]

    def _check_finite(self) -> None:
        """What is added to infinity is lost, and a candidate may well be finite there."""
        for stage in self.program.stages:
            if stage.adds and not all(self.tables.is_finite(slot.base) for slot in stage.slots):
                raise Refused("the forward pass has values that are not finite")

    @property
    def bytes_per_candidate(self) -> int:
        """Memory that a tile takes for each of its candidates."""
        program = self.program
        entering = sum(entry.length * BYTES[entry.slot.kind] for entry in program.entries)
        leaving = sum(slot.size * BYTES[slot.kind] for slot, _ in program.cuts.values())
        # New channels exist as torch makes them and in the order of the kernel.
        return max(1, program.examples * (2 * entering + leaving))

    def run(self, candidates: Candidates, tile: Span) -> Found:
        """Evaluate a tile up to the cuts."""
        num, program = tile.end - tile.start, self.program
        made = self._enter(candidates, tile)
        for number, (index, (slot, _)) in enumerate(program.cuts.items()):
            like = self.base(index)
            made["out", number] = like.new_empty(num * program.examples, slot.size)
            made["flags", number] = torch.zeros(num * program.examples, dtype=torch.bool)
        words = [
            made[word.name].data_ptr() if isinstance(word, PerTile) else word for word in self.fixed
        ]
        work = torch.zeros(num, dtype=torch.int64)
        scratch = self.code.scratch
        tables = [torch.tensor(words), work]
        run_kernel(self.code.text, tables, num, program.examples, 0, scratch)
        return Found(*self._leave(made, num), work)

    def _leave(
        self, made: dict[tuple[object, ...], Tensor], num: int
    ) -> tuple[dict[int, Change], Pairs | None]:
        """Changed examples at the cuts."""
        examples, cuts = self.program.examples, self.program.cuts
        flags = [made["flags", number] for number in range(len(cuts))]
        chosen = torch.stack(flags).any(0).nonzero()[:, 0]
        if len(chosen) == 0:
            return {}, None
        pairs = Pairs(chosen // examples, chosen % examples, num, examples)
        env: dict[int, Change] = {}
        for number, (index, (_, layout)) in enumerate(cuts.items()):
            value = self.base(index)
            new = layout.restore(made["out", number][chosen])
            own = flags[number][chosen].reshape(-1, *[1] * (new.dim() - 1))
            new = torch.where(own, new, value.movedim(layout.axis, 0)[pairs.example])
            if layout.axis == 0:
                env[index] = Examples(new)
                continue
            whole = value.unsqueeze(0).repeat(num, *[1] * value.dim())
            whole.movedim(layout.axis + 1, 1)[pairs.candidate, pairs.example] = new
            env[index] = Stacked(whole)
        return env, pairs

    def _word(self, word: Word) -> int | PerTile:
        if isinstance(word, int | PerTile):
            return word
        if isinstance(word, Room):
            return self.code.rooms[word.part, word.owner]
        if isinstance(word, Stride):
            table = self.tables.get(word.table)
            return table.stride(0) * table.element_size() if len(table) > 1 else 0
        values = word.values if isinstance(word, Fixed) else self.tables.get(word)
        return values.data_ptr()

    # -- what enters ----------------------------------------------------------------------------

    def _enter(self, candidates: Candidates, tile: Span) -> dict[tuple[object, ...], Tensor]:
        sources = self.tables.written.sources
        made: dict[tuple[object, ...], Tensor] = {}
        if self.program.spreads:
            changed = candidates.changed(tile)
            vectors = {sources[name]: value for name, value in changed.items()}
            for number, spread in enumerate(self.program.spreads):
                lines = spread.make(lambda index: vectors.get(index, self.base(index)))
                lines = lines.expand(tile.end - tile.start, -1)
                made["spread", number] = fill(lines, (0, spread.row - lines.shape[1])).contiguous()
            return made
        local = candidates.local(tile)
        assert local is not None
        env = {sources[name]: Column(0, unit, rows) for name, (unit, rows) in local.items()}
        for node in self.program.before:
            change = column_rule(node, env, self.base)
            assert change is not None
            env[node.outputs[0]] = change
        for number, entry in enumerate(self.program.entries):
            column = column_rule(entry.node, env, self.base)
            assert column is not None
            made["column", number] = _line_up(column.slices, entry)
            made[("units",)] = column.unit.contiguous()
        return made


def _line_up(slices: Tensor, entry: Entry) -> Tensor:
    """New channels (n, examples, *pixels) as lines in the order of the slot."""
    flat = slices.flatten(2)
    lines = flat.new_zeros(*flat.shape[:2], entry.length)
    lines[:, :, entry.order.flatten()] = flat
    return lines
