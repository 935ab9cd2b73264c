"""A program as machine code, with the numbers of a step, run tile by tile."""

from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.code import Code
from hardstep.evaluation.events.program import (
    Fixed,
    PerTile,
    Program,
    Room,
    Shared,
    Stride,
    Word,
)
from hardstep.evaluation.events.responses import add_channels, spread_vectors
from hardstep.evaluation.events.tables import Tables
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.incremental.changes import Change, Examples, Pairs, Stacked
from hardstep.evaluation.trace.record import Refused


class Found(NamedTuple):
    """What a tile's candidates change at the cuts."""

    env: dict[int, Change]
    pairs: Pairs | None  # which examples of which candidates; nothing if none
    work: Tensor  # (n,) operations on vectors that each candidate took


class EventKernel:
    """One block in one step."""

    def __init__(self, program: Program, code: Code, tables: Tables) -> None:
        self.program, self.code, self.tables = program, code, tables
        self.base = tables.written.values.__getitem__
        self._check_finite()
        self.fixed = [self._word(word) for stage in program.stages for word in stage.words]

    def _check_finite(self) -> None:
        """What is added to infinity is lost, and a candidate may well be finite there."""
        adding = [stage for stage in self.program.stages if stage.adds]
        added = [slot.base for stage in adding for slot in stage.slots]
        added += [entry.pictures for entry in self.program.entries]
        if not all(map(self.tables.is_finite, added)):
            raise Refused("the forward pass has values that are not finite")

    @property
    def bytes_per_candidate(self) -> int:
        """Memory that a tile takes for each of its candidates."""
        program = self.program
        entering = sum(entry.length * entry.slot.kind.num_bytes for entry in program.entries)
        leaving = sum(slot.size * slot.kind.num_bytes for slot, _ in program.cuts.values())
        # New channels exist as torch makes them and in the order of the kernel.
        return max(1, program.examples * (2 * entering + leaving))

    def run(self, candidates: Candidates, tile: Span) -> Found:
        """Evaluate a tile up to the cuts."""
        num, program = tile.end - tile.start, self.program
        enter = spread_vectors if program.spreads else add_channels
        made = enter(program, candidates, tile, self.tables)
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
        if isinstance(word, Room):  # most are
            return self.code.rooms[word.part, word.owner]
        if isinstance(word, int | PerTile):
            return word
        if isinstance(word, Shared):
            return self.code.shared[word.owner]
        if isinstance(word, Stride):
            table = self.tables.get(word.table)
            return table.stride(0) * table.element_size() if len(table) > 1 else 0
        values = word.values if isinstance(word, Fixed) else self.tables.get(word)
        return values.data_ptr()
