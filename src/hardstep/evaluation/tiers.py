"""The evaluator that computes what candidates change, and nothing else: one loop over tiers.

Per step: record one base forward pass. Per block of parameters, the first of these that applies:

    fused        the slice of the record that the block reaches, compiled into one kernel
    incremental  changes carried through the slice operation by operation
    batched      whole forward passes, many at once
    one by one   whole forward passes as a user would run them

A tier that does not evaluate a block says why, and the next one is tried. The first losses that a
block gets from one of the first two are compared with those of plain forward passes; should they
differ, the tier is not used for that block again.

`notes` says which tier a block took, or why it took a slow one; `explain` adds what it costs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from hardstep._checks import check_positive
from hardstep.errors import HardstepError
from hardstep.evaluation.batched import Batched
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, Explanation, TierReport, measure_step
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
from hardstep.evaluation.incremental.verify import find_contradiction, report
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import Findings, LiveBytes
from hardstep.evaluation.objectives import Problem
from hardstep.evaluation.onebyone import OneByOne
from hardstep.evaluation.trace.record import Record, Refused, record
from hardstep.evaluation.trace.slice import Slice
from hardstep.subspaces import BoundSubspace

TILE_BYTES = 32 << 20  # the largest value of a tile, if every example of it changed
MAX_TILE = 1024
MEASURED = 4  # candidates on which the memory of one is measured
FUSED, INCREMENTAL, BATCHED, ONE_BY_ONE = "fused", "incremental", "batched", "one by one"
_Key = tuple[str, int, int]


@dataclass(frozen=True)
class _Memory:
    """What was found out about a subspace; another may change the same tensors otherwise."""

    plans: dict[_Key, KernelPlan] = field(default_factory=dict)
    peaks: dict[_Key, int] = field(default_factory=dict)  # bytes of one incremental candidate
    verified: set[tuple[_Key, str]] = field(default_factory=set)  # blocks and tiers
    refusals: dict[tuple[_Key, str], str] = field(default_factory=dict)  # why a tier is not used


@dataclass(frozen=True)
class Step:
    """One step's candidates and record."""

    candidates: Candidates
    problem: Problem
    record: Record
    memory: _Memory

    @cached_property
    def tables(self) -> Tables:
        """The record's values as kernels read them."""
        return Tables(self.record)

    @property
    def base(self) -> Tensor:
        """The base's loss."""
        return self.record.values[self.record.result]

    def names(self, span: Span) -> tuple[str, ...]:
        """The tensors of a block."""
        return self.candidates.subspace.blocks[span.block].names

    def slice(self, span: Span) -> Slice:
        """The part of the record that a block reaches; may be refused."""
        return Slice(self.record, self.names(span))

    def key(self, span: Span) -> _Key:
        """What a block's evaluation depends on, apart from numbers and from the subspace."""
        return (self.record.signature, span.block, self.candidates.offsets.shape[-1])


class Tier(ABC):
    """A way to evaluate a block."""

    name: str
    reads_record = True  # so that its losses have to be verified
    distrusted: tuple[str, ...] = ()  # tiers that are not used for a block this one gets wrong

    @abstractmethod
    def losses(self, step: Step, span: Span) -> Tensor | str:
        """The losses of a span, or why this tier does not find them.

        Raises:
            Refused: The record cannot answer, so that no tier that reads it could.
        """

    @abstractmethod
    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """How a span that was just evaluated was evaluated, and why not faster."""


@dataclass(frozen=True)
class _Fused(Tier):
    """A compiled kernel per block, planned once for the same operations."""

    memory_budget: int
    name = FUSED
    distrusted = (FUSED,)

    def losses(self, step: Step, span: Span) -> Tensor | str:
        key, plans = step.key(span), step.memory.plans
        if key not in plans:
            nodes = step.slice(span).nodes
            try:
                plans[key] = plan_kernel(step.candidates, step.record, nodes, span)
            except Exception as fault:  # some are ours; there is a slower tier that is right
                ours = f"no kernel could be made: {type(fault).__name__}: {fault}"
                reason = str(fault) if isinstance(fault, Unfusable) else ours
                step.memory.refusals[key, FUSED] = reason
                return reason
        try:
            kernel = Kernel(plans[key], step.tables)
            sums = {closing.output for closing in kernel.plan.program.closings}
            walk = None if step.record.result in sums else Walk(step.slice(span))
            run = partial(self._run, step, kernel, walk)
            size = kernel.tile_size(step.candidates.offsets.shape, self.memory_budget)
            return torch.cat(span.evaluate(run, size))
        except Unfusable as unfit:  # these candidates, not the operations
            return str(unfit)

    @staticmethod
    def _run(step: Step, kernel: Kernel, walk: Walk | None, tile: Span) -> Tensor:
        """The kernel's sums, carried on to the loss unless it is one of them."""
        sums, num = kernel.sums(step.candidates, tile), tile.end - tile.start
        if walk is None:
            return sums[step.record.result].reshape(num)
        env: dict[int, Change] = {index: Stacked(total) for index, total in sums.items()}
        return walk.finish(env, kernel.plan.after, None, num)

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        planned = step.memory.plans[step.key(span)]
        kernel = Kernel(planned, step.tables)
        tile = kernel.tile_size(step.candidates.offsets.shape, self.memory_budget)
        cost = Cost(count_operations(planned.program), count_bytes(planned.program))
        return TierReport(f"fused, {planned.reach}", "", tile, cost)


@dataclass(frozen=True)
class _Incremental(Tier):
    """Columns while changes stay columns, then examples that differ, then whole values."""

    memory_budget: int
    name = INCREMENTAL
    # What a model hides from the record it may hide from a batched pass too.
    distrusted = (INCREMENTAL, BATCHED)

    def losses(self, step: Step, span: Span) -> Tensor | str:
        walk = Walk(step.slice(span))
        run = partial(walk.losses, step.candidates)
        return torch.cat(span.evaluate(run, self._tile_size(step, walk, span)))

    def _tile_size(self, step: Step, walk: Walk, span: Span) -> int:
        """Candidates at once: by their largest value, and by what the budget holds of them all."""
        size = min(MAX_TILE, max(1, TILE_BYTES // walk.largest))
        peaks, key = step.memory.peaks, step.key(span)
        if key not in peaks:
            few = Span(span.block, span.start, min(span.end, span.start + MEASURED))
            with LiveBytes() as live:
                walk.losses(step.candidates, few)
            peaks[key] = max(1, live.peak // (few.end - few.start))
        return max(1, min(size, self.memory_budget // peaks[key]))

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        tile = self._tile_size(step, Walk(step.slice(span)), span)
        return TierReport("operation by operation", reason, tile, Cost())


@dataclass(frozen=True)
class _Plain(Tier):
    """An evaluator of whole forward passes."""

    name: str
    evaluator: Batched | OneByOne
    reads_record = False

    def losses(self, step: Step, span: Span) -> Tensor | str:
        return self.evaluator.losses(step.candidates, step.problem, [span])

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        return self.evaluator.describe(step.candidates, step.problem, span, reason)


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
        check_positive("Incremental: memory_budget", memory_budget)
        self.memory_budget = memory_budget
        self.fallback = fallback if fallback is not None else Batched(memory_budget=memory_budget)
        self.fused = fused
        self.notes: dict[tuple[str, ...], str] = {}
        self._memories: Findings[BoundSubspace, _Memory] = Findings()

    def __repr__(self) -> str:
        return f"Incremental(memory_budget={self.memory_budget}, fused={self.fused})"

    @property
    def note(self) -> str:
        """How the last step was evaluated, in a line."""
        slow = {k: why for k, why in self.notes.items() if why not in (FUSED, INCREMENTAL)}
        if slow:
            names, why = next(iter(slow.items()))
            return f"{len(slow)} of {len(self.notes)} blocks not incremental; {names[0]}: {why}"
        return f"{INCREMENTAL}, {FUSED}" if FUSED in self.notes.values() else INCREMENTAL

    @property
    def path(self) -> str:
        """The same in a word or two, for a progress bar."""
        fused = sum(note == FUSED for note in self.notes.values())
        if fused in (0, len(self.notes)):
            return FUSED if fused else self.note.split(";")[0]
        return f"{fused}/{len(self.notes)} {FUSED}"

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """Losses block by block."""
        step = self._begin(candidates, problem)
        if isinstance(step, str):
            self.notes = {block.names: step for block in candidates.subspace.blocks}
            return self.fallback.losses(candidates, problem)
        pieces = []
        for span in candidates.spans():
            losses, tier, reason = self._evaluate(step, span)
            self.notes[step.names(span)] = tier.name if tier.reads_record else reason
            pieces.append(self._restore_digits(step, span, losses))
        return torch.cat(pieces)

    def _begin(self, candidates: Candidates, problem: Problem) -> Step | str:
        """The step with its record, or why there is none (an exception would keep its values)."""
        if candidates.subspace.everywhere:
            return "a candidate moves every tensor, so there is nothing to keep"
        try:
            written = record(problem, candidates.base, candidates.seed, self.memory_budget)
        except HardstepError:
            raise
        except Refused as reason:
            return str(reason)
        except Exception as reason:  # a real fault of the model raises again in the fallback
            return f"{type(reason).__name__}: {reason}"
        memory = self._memories.setdefault(candidates.subspace, _Memory())
        return Step(candidates, problem, written, memory)

    def _tiers(self) -> list[Tier]:
        """All of them, the fastest first; the last one refuses nothing."""
        tiers: list[Tier] = [
            _Fused(self.memory_budget),
            _Incremental(self.memory_budget),
            _Plain(BATCHED, self.fallback),
            _Plain(ONE_BY_ONE, OneByOne()),
        ]
        return tiers if self.fused else tiers[1:]

    def _evaluate(self, step: Step, span: Span) -> tuple[Tensor, Tier, str]:
        """Losses of a block, the tier that found them and why it was not the one before it."""
        reason, readable = "" if self.fused else "kernels are switched off", True
        for tier in self._tiers():
            if tier.reads_record and not readable:
                continue
            try:
                found = self._attempt(tier, step, span)
            except Refused as refusal:
                found, readable = str(refusal), False
            if isinstance(found, Tensor):
                return found, tier, reason
            reason = found
        raise AssertionError("plain forward passes refuse nothing")

    def _attempt(self, tier: Tier, step: Step, span: Span) -> Tensor | str:
        """A tier's losses of a block, or why they are not used."""
        key = (step.key(span), tier.name)
        if key in step.memory.refusals:
            return step.memory.refusals[key]
        found = tier.losses(step, span)
        if isinstance(found, str) or not tier.reads_record or key in step.memory.verified:
            return found
        step.memory.verified.add(key)
        losses = self._restore_digits(step, span, found)
        wrong = find_contradiction(step.candidates, step.problem, span, losses, step.base)
        if wrong is None:
            return found
        report(step.names(span), tier.name, wrong)
        for name in tier.distrusted:
            step.memory.refusals[step.key(span), name] = f"a wrong {tier.name} loss: {wrong}"
        return step.memory.refusals[key]

    def _restore_digits(self, step: Step, span: Span, losses: Tensor) -> Tensor:
        """Losses, with those that are tiny beside the base's from whole forward passes."""
        base = step.base  # losses are sums with it, and tiny ones have lost half of their digits
        if not base.is_floating_point():
            return losses
        limit = float(base.abs()) * torch.finfo(base.dtype).eps ** 0.5
        tiny = (losses.abs() < limit) & (losses != 0)
        if not bool(tiny.any()):
            return losses
        places = tiny.nonzero().flatten()
        whole = self.fallback.losses(step.candidates, step.problem, span.singles(places.tolist()))
        return losses.index_put((places,), whole.to(losses.dtype))

    def explain(self, candidates: Candidates, problem: Problem) -> Explanation:
        """Path, reason and cost of every parameter, and the memory of a step."""

        def begin() -> Callable[[Span], TierReport]:
            step = self._begin(candidates, problem)
            if isinstance(step, str):
                return partial(self.fallback.report, candidates, problem, step)
            return partial(self._report, step)

        return measure_step(candidates, problem, begin)

    def _report(self, step: Step, span: Span) -> TierReport:
        _, tier, reason = self._evaluate(step, span)
        return tier.describe(step, span, reason)
