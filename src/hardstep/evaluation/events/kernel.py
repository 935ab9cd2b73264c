"""A program as machine code, with the numbers of a step, run tile by tile."""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.code import Code
from hardstep.evaluation.events.program import Program, Stride, Table
from hardstep.evaluation.events.responses import Made, add_channels, spread_vectors
from hardstep.evaluation.events.tables import Tables
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.incremental.changes import Change, Examples, Pairs, Stacked
from hardstep.evaluation.trace.nodes import Refused


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
        added = program.list_added()
        tables.prepare([*code.tables, *added], added)
        # What is added to infinity is lost, and a candidate may well be finite there.
        if not all(map(tables.is_finite, added)):
            raise Refused("the forward pass has values that are not finite")
        self.words = code.words.copy()
        found = [self._find(word) for word, places in code.of_step for _ in places]
        self.words[:, code.places_of_step] = found

    def _find(self, word: Table | Stride) -> int:
        if isinstance(word, Table):
            return self.tables.get(word).data_ptr()
        table = self.tables.get(word.table)
        return table.stride(0) * table.element_size() if len(table) > 1 else 0

    @property
    def bytes_per_candidate(self) -> int:
        """Memory that a tile takes for each of its candidates."""
        program = self.program
        columns = [entry for entry in program.entries if not entry.has_patches]
        entering = sum(entry.length * entry.slot.kind.num_bytes for entry in columns)
        leaving = sum(slot.size * slot.kind.num_bytes for slot, _ in program.cuts.values())
        # What torch convolves exists as it makes it and in the order of the kernel.
        return max(1, program.examples * (2 * entering + leaving))

    def open(self, candidates: Candidates, tile: Span) -> "OpenTile":
        """A tile with the numbers that its candidates change first."""
        enter = spread_vectors if self.program.spreads else add_channels
        made = enter(self.program, candidates, tile, self.tables)
        return OpenTile(self, tile, made)

    def run(self, candidates: Candidates, tile: Span) -> Found:
        """Evaluate a tile up to the cuts."""
        opened = self.open(candidates, tile)
        opened.run(0, opened.num)
        return opened.leave()


class OpenTile:
    """A tile whose candidates are evaluated some at a time, and leave the kernel together."""

    def __init__(self, kernel: EventKernel, tile: Span, made: Made) -> None:
        self.kernel, self.tile, self._made = kernel, tile, made
        self.num = num = tile.num
        program = kernel.program
        for number, (index, (slot, _)) in enumerate(program.cuts.items()):
            like = kernel.base(index)
            made["out", number] = like.new_empty(num * program.examples, slot.size)
            made["flags", number] = torch.zeros(num * program.examples, dtype=torch.bool)
        words = kernel.words.copy()
        for word, place in kernel.code.of_tile:
            words[:, place] = made[word.name].data_ptr()
        self._words, self.work = torch.from_numpy(words), torch.zeros(num, dtype=torch.int64)

    def run(self, first: int, last: int) -> None:
        """Evaluate some of the candidates."""
        code, examples = self.kernel.code, self.kernel.program.examples
        run_kernel(code.text, [self._words, self.work], last, examples, 0, code.scratch, first)

    def leave(self) -> Found:
        """Changed examples at the cuts, once all candidates have been evaluated."""
        examples, cuts = self.kernel.program.examples, self.kernel.program.cuts
        flags = [self._made["flags", number] for number in range(len(cuts))]
        chosen = reduce(torch.logical_or, flags).nonzero()[:, 0]
        if len(chosen) == 0:
            return Found({}, None, self.work)
        pairs = Pairs(chosen // examples, chosen % examples, self.num, examples)
        env: dict[int, Change] = {}
        for number, (index, (_, layout)) in enumerate(cuts.items()):
            value = self.kernel.base(index)
            new = layout.restore(self._made["out", number].index_select(0, chosen))
            if len(cuts) > 1:  # an example may differ at one cut, and not at another
                own = flags[number][chosen].reshape(-1, *[1] * (new.dim() - 1))
                new = torch.where(own, new, value.movedim(layout.axis, 0)[pairs.example])
            if layout.axis == 0:
                env[index] = Examples(new)
                continue
            whole = value.unsqueeze(0).repeat(self.num, *[1] * value.dim())
            whole.movedim(layout.axis + 1, 1)[pairs.candidate, pairs.example] = new
            env[index] = Stacked(whole)
        return Found(env, pairs, self.work)
