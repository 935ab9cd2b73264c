"""The evaluator that computes what candidates change, and nothing else.

Per step: record one base forward pass. Per block of parameters, the first of these that applies:

    fused        the part of the record that the block reaches, compiled into one kernel
    incremental  changes carried through it operation by operation, as columns while they stay
                 columns, then as rows that differ, and as whole values where no rule applies
    fallback     batches of whole forward passes, for what cannot be followed

The first losses that a block gets in either of the first two ways are compared with those of plain
forward passes, which take over should they differ (`comparison`).

`notes` says which one a block took, `explain` also why and what it costs.
"""

from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from hardstep.errors import ConfigError, HardstepError
from hardstep.evaluation.batched import Batched
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, Explanation, Verdict, explained, forward_cost
from hardstep.evaluation.fused import (
    Kernel,
    KernelPlan,
    Tables,
    Unfusable,
    count_bytes,
    count_operations,
    plan_kernel,
)
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.verify import contradiction, report
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import LiveBytes, halving
from hardstep.evaluation.objectives import Problem
from hardstep.evaluation.onebyone import OneByOne
from hardstep.evaluation.trace.record import Record, Refused, record
from hardstep.evaluation.trace.slice import Slice
from hardstep.subspaces import BoundSubspace

TILE_BYTES = 32 << 20  # the largest value of a tile, if every row of it changed
MAX_TILE = 1024
MEASURED = 4  # candidates on which the memory of one is measured
FUSED, FOLLOWED = "fused", "incremental"
_Key = tuple[str, int, int]


@dataclass(frozen=True)
class _Step:
    """One step's candidates and record."""

    candidates: Candidates
    problem: Problem
    record: Record
    tables: Tables

    @property
    def base(self) -> Tensor:
        """The base's loss."""
        return self.record.values[self.record.result]

    def walk(self, span: Span) -> Walk:
        """The part of the record that a block reaches."""
        names = self.candidates.subspace.blocks[span.block].names
        return Walk(Slice(self.record, names))

    def key(self, span: Span) -> _Key:
        """What a block's evaluation depends on, apart from numbers and from the subspace."""
        return (self.record.signature, span.block, self.candidates.offsets.shape[-1])


@dataclass(frozen=True)
class _Known:
    """What holds for the same operations on the same subspace."""

    plans: dict[_Key, KernelPlan | str] = field(default_factory=dict)
    peaks: dict[_Key, int] = field(default_factory=dict)  # bytes of one followed candidate
    compared: set[tuple[_Key, str]] = field(default_factory=set)  # with plain forward passes
    wrong: dict[_Key, str] = field(default_factory=dict)  # how followed losses differed


class Incremental:
    """Exact losses from what a probe changes; the default.

    Args:
        memory_budget: Bytes that the record may keep, and that the largest value of a tile may
            take (several are alive at once). A forward pass that keeps more is not recorded.
        fallback: What evaluates blocks that the rules cannot follow.
        fused: Whether to compile kernels where they apply (on the CPU).
    """

    def __init__(
        self,
        memory_budget: int = 1 << 30,
        fallback: Batched | None = None,
        fused: bool = True,
    ) -> None:
        if memory_budget < 1:
            raise ConfigError(f"Incremental: memory_budget must be positive, got {memory_budget}")
        self.memory_budget = memory_budget
        self.fallback = fallback if fallback is not None else Batched(memory_budget=memory_budget)
        self.fused = fused
        self.notes: dict[tuple[str, ...], str] = {}
        self._known: WeakKeyDictionary[BoundSubspace, _Known] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Incremental(memory_budget={self.memory_budget}, fused={self.fused})"

    @property
    def note(self) -> str:
        """How the last step was evaluated, in a line."""
        slow = {names: why for names, why in self.notes.items() if why not in (FUSED, FOLLOWED)}
        if slow:
            names, why = next(iter(slow.items()))
            return f"{len(slow)} of {len(self.notes)} blocks not incremental; {names[0]}: {why}"
        return f"{FOLLOWED}, {FUSED}" if FUSED in self.notes.values() else FOLLOWED

    @property
    def path(self) -> str:
        """The same in a word or two, for a progress bar."""
        fused = sum(note == FUSED for note in self.notes.values())
        if fused in (0, len(self.notes)):
            return FUSED if fused else self.note.split(";")[0]
        return f"{fused}/{len(self.notes)} {FUSED}"

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """Losses block by block."""
        written = self._record(candidates, problem)
        if isinstance(written, str):
            return self._without(candidates, problem, written)
        step = _Step(candidates, problem, written, Tables(written))
        pieces = []
        for span in candidates.spans():
            losses, note = self._span(step, span)
            self.notes[candidates.subspace.blocks[span.block].names] = note
            pieces.append(self._with_digits(step, span, losses))
        return torch.cat(pieces)

    def _record(self, candidates: Candidates, problem: Problem) -> Record | str:
        """The record, or why there is none (an exception would keep its values alive)."""
        if candidates.subspace.everywhere:
            return "a candidate moves every tensor, so there is nothing to keep"
        try:
            return record(problem, candidates.base, candidates.seed, self.memory_budget)
        except HardstepError:
            raise
        except Refused as reason:
            return str(reason)
        except Exception as reason:  # a real fault of the model raises again in the fallback
            return f"{type(reason).__name__}: {reason}"

    def _without(self, candidates: Candidates, problem: Problem, reason: str) -> Tensor:
        self.notes = {block.names: reason for block in candidates.subspace.blocks}
        return self.fallback.losses(candidates, problem)

    def _span(self, step: _Step, span: Span) -> tuple[Tensor, str]:
        """Losses of a block, and how they were found or why they had to be found otherwise."""
        try:
            fast = self._fast(step, span)
        except Refused as refusal:
            reason = str(refusal)
        else:
            if fast is not None:
                return fast
            wrong = self._remembered(step).wrong[step.key(span)]
            return OneByOne().losses(step.candidates, step.problem, [span]), wrong
        # Not inside `except`: the exception would keep the refused attempt's values alive.
        return self.fallback.losses(step.candidates, step.problem, [span]), reason

    def _fast(self, step: _Step, span: Span) -> tuple[Tensor, str] | None:
        """Losses by the first way that applies; nothing if plain forward passes contradict it."""
        if step.key(span) in self._remembered(step).wrong:
            return None
        walk = step.walk(span)
        planned = self._plan(step, walk, span)
        if isinstance(planned, KernelPlan):
            found = self._fused(step, walk, planned, span)
            if found is not None and self._holds(step, span, FUSED, found):
                return found, FUSED
        found = self._followed(step, walk, span)
        return (found, FOLLOWED) if self._holds(step, span, FOLLOWED, found) else None

    def _holds(self, step: _Step, span: Span, way: str, losses: Tensor) -> bool:
        """Whether a block's first losses by a way are those of plain forward passes."""
        known, key = self._remembered(step), step.key(span)
        if (key, way) in known.compared:
            return True
        known.compared.add((key, way))
        losses = self._with_digits(step, span, losses)
        wrong = contradiction(step.candidates, step.problem, span, losses, step.base)
        if wrong is None:
            return True
        report(step.candidates.subspace.blocks[span.block].names, way, wrong)
        (known.plans if way == FUSED else known.wrong)[key] = f"a wrong {way} loss: {wrong}"
        return False

    def _with_digits(self, step: _Step, span: Span, losses: Tensor) -> Tensor:
        """Losses, with those that are tiny beside the base's from whole forward passes.

        They are differences from the base's, and by then half of the digits are lost.
        """
        base = step.base
        if not base.is_floating_point():
            return losses
        limit = float(base.abs()) * torch.finfo(base.dtype).eps ** 0.5
        tiny = (losses.abs() < limit) & (losses != 0)
        if not bool(tiny.any()):
            return losses
        places = tiny.nonzero().flatten()
        alone = span.singles(places.tolist())
        whole = self.fallback.losses(step.candidates, step.problem, alone)
        return losses.index_put((places,), whole.to(losses.dtype))

    def _plan(self, step: _Step, walk: Walk, span: Span) -> KernelPlan | str:
        """A block's kernel, planned once for the same operations, or why there is none."""
        if not self.fused:
            return "kernels are switched off"
        plans, key = self._remembered(step).plans, step.key(span)
        if key not in plans:
            try:
                plans[key] = plan_kernel(step.candidates, step.record, walk.nodes, span)
            except Unfusable as reason:
                plans[key] = str(reason)
            except Exception as fault:  # of ours; there is a slower way that is right
                plans[key] = f"no kernel could be made: {type(fault).__name__}: {fault}"
        return plans[key]

    def _remembered(self, step: _Step) -> _Known:
        """What was found out about a subspace; another may change the same tensors otherwise."""
        return self._known.setdefault(step.candidates.subspace, _Known())

    def _fused(self, step: _Step, walk: Walk, planned: KernelPlan, span: Span) -> Tensor | None:
        """Losses by the kernel; nothing if these candidates, not the operations, do not suit it."""
        try:
            return self._by_kernel(step, walk, Kernel(planned, step.tables), span)
        except Unfusable:
            return None

    def _by_kernel(self, step: _Step, walk: Walk, kernel: Kernel, span: Span) -> Tensor:

        def run(tile: Span) -> Tensor:
            sums = kernel.sums(step.candidates, tile)
            env: dict[int, Change] = {index: Stacked(total) for index, total in sums.items()}
            return walk.finish(env, kernel.plan.after, None, tile.end - tile.start)

        size = kernel.tile_size(step.candidates.offsets.shape, self.memory_budget)
        return torch.cat([halving(run, tile) for tile in span.tiles(size)])

    def _followed(self, step: _Step, walk: Walk, span: Span) -> Tensor:
        run = partial(walk.losses, step.candidates)
        return torch.cat([halving(run, tile) for tile in span.tiles(self._tile(step, walk, span))])

    def _tile(self, step: _Step, walk: Walk, span: Span) -> int:
        """Candidates at once: by their largest value, and by what the budget holds of them all."""
        size = min(MAX_TILE, max(1, TILE_BYTES // walk.largest))
        peaks, key = self._remembered(step).peaks, step.key(span)
        if key not in peaks:
            few = Span(span.block, span.start, min(span.end, span.start + MEASURED))
            with LiveBytes() as live:
                walk.losses(step.candidates, few)
            peaks[key] = max(1, live.peak // (few.end - few.start))
        return max(1, min(size, self.memory_budget // peaks[key]))

    # -- explaining -------------------------------------------------------------------------

    def explain(self, candidates: Candidates, problem: Problem) -> Explanation:
        """Path, reason and cost of every parameter, and the memory of a step."""
        forward = forward_cost(candidates, problem)
        with LiveBytes() as live:
            written = self._record(candidates, problem)
            if isinstance(written, str):
                without = partial(self.fallback.verdict, candidates, problem, reason=written)
                rows = explained(candidates, without)
            else:
                step = _Step(candidates, problem, written, Tables(written))
                rows = explained(candidates, partial(self._verdict, step))
        return Explanation(rows, forward, live.peak)

    def _verdict(self, step: _Step, span: Span) -> Verdict:
        """Evaluate some candidates of a block and say how it was done."""
        _, note = self._span(step, span)
        if step.key(span) in self._remembered(step).wrong:
            return Verdict("one at a time", note, OneByOne().tile, Cost())
        if note not in (FUSED, FOLLOWED):
            return self.fallback.described(step.candidates, step.problem, span, note)
        walk = step.walk(span)
        planned = self._plan(step, walk, span)
        if note == FUSED and isinstance(planned, KernelPlan):
            size = Kernel(planned, step.tables).tile_size(
                step.candidates.offsets.shape, self.memory_budget
            )
            cost = Cost(count_operations(planned.program), count_bytes(planned.program))
            return Verdict(f"fused, {planned.reach}", "", size, cost)
        reason = planned if isinstance(planned, str) else "some candidates change two units"
        return Verdict("operation by operation", reason, self._tile(step, walk, span), Cost())
