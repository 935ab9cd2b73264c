"""The tiers: each a way to evaluate a block of parameters, on a step's record or without it.

    fused        the slice of the record that the block reaches, compiled into one kernel
    events       the same, following single numbers that differ, through convolutions and time
    gathered     changed examples of many candidates in one batch: attention, embeddings
    incremental  changes carried through the slice operation by operation
    batched      whole forward passes, many at once
    one by one   whole forward passes as a user would run them

A tier plans how it evaluates a block, or says why it does not; `tiers` has the loop that tries
them. A plan cuts the block at fixed places, so that any part of it has the losses it has in the
whole.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from hardstep.evaluation.batched import BATCHED, Batched
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.effort import Effort
from hardstep.evaluation.events import Code, Program
from hardstep.evaluation.events import Tables as EventTables
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.fused import (
    Kernel,
    KernelPlan,
    Tables,
    Unfusable,
    count_bytes,
    count_operations,
    plan_kernel,
)
from hardstep.evaluation.gathered import Lifts, Mixed, Passes, Scene
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.survey import Reach
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import LiveBytes
from hardstep.evaluation.onebyone import OneByOne
from hardstep.evaluation.ops import REGISTRY, count_work
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.tiling import Tiling, even_out, tile_among_threads, tile_evenly
from hardstep.evaluation.trace.nodes import Record
from hardstep.evaluation.trace.slice import Slice

TILE_BYTES = 32 << 20  # the largest value of a tile, if every example of it changed
MAX_TILE = 1024
MEASURED = 4  # candidates on which the memory of one is measured
FUSED, EVENTS, GATHERED, INCREMENTAL = ON_RECORD = "fused", "events", "gathered", "incremental"
HALVES = {torch.float16, torch.bfloat16}
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Occurring:
    """How many of the searched rows of a table the examples of a step read.

    Args:
        read: Rows.
        searched: Rows.
        idle: Candidates that change a row that no example reads.
    """

    read: int
    searched: int
    idle: int

    def __str__(self) -> str:
        return f"{self.read:,} of {self.searched:,} rows occur in the batch"


@dataclass(frozen=True)
class Memory:
    """What was found out about a subspace; another may change the same tensors otherwise."""

    plans: dict[Key, KernelPlan] = field(default_factory=dict)
    programs: dict[Key, tuple[Program, Code]] = field(default_factory=dict)  # of events
    passes: dict[Key, Passes] = field(default_factory=dict)  # of gathered examples
    efforts: dict[Key, Effort] = field(default_factory=dict)  # of a record's operations
    forward_work: dict[str, float] = field(default_factory=dict)  # by a record's signature
    peaks: dict[Key, int] = field(default_factory=dict)  # bytes of one incremental candidate
    reaches: dict[str, Reach] = field(default_factory=dict)  # by the shapes of a batch
    verified: set[tuple[Key, str]] = field(default_factory=set)  # blocks and tiers
    refusals: dict[tuple[Key, str], str] = field(default_factory=dict)  # why a tier is not used
    occurring: dict[str, Occurring] = field(default_factory=dict)  # rows of tables, by tensor


@dataclass(frozen=True)
class Step:
    """One step's candidates and record."""

    candidates: Candidates
    problem: Problem
    record: Record
    memory: Memory

    @cached_property
    def tables(self) -> Tables:
        """The record's values as kernels read them."""
        return Tables(self.record)

    @cached_property
    def scene(self) -> Scene | str:
        """Where the examples stand in the record's values, or why that is not known."""
        try:
            scene = Scene(self.record, self.problem)
        except Mixed as reason:
            return str(reason)
        scene.find_calls(REGISTRY)
        return scene

    @cached_property
    def lifts(self) -> Lifts:
        """The record's values with examples in front."""
        assert isinstance(self.scene, Scene)
        return Lifts(self.scene)

    @cached_property
    def event_tables(self) -> EventTables:
        """The record's values as kernels of events read them."""
        return EventTables(self.record)

    @property
    def forward_work(self) -> float:
        """Operations that a plain forward pass takes, about."""
        known, signature = self.memory.forward_work, self.record.signature
        if signature not in known:
            known[signature] = count_work(self.record, self.record.nodes)
        return known[signature]

    @property
    def base(self) -> Tensor:
        """The base's loss."""
        return self.record.values[self.record.result]

    def names(self, span: Span) -> tuple[str, ...]:
        """The tensors of a block."""
        return self.candidates.subspace.blocks[span.block].names

    def slice(self, span: Span) -> Slice:
        """The part of the record that a block reaches; may be refused."""
        return Slice(self.record, self.names(span), REGISTRY)

    def key(self, span: Span) -> Key:
        """What a block's evaluation depends on, apart from numbers and from the subspace."""
        return (self.record.signature, span.block, self.candidates.offsets.shape[-1])


class Tier(ABC):
    """A way to evaluate a block."""

    name: str
    reads_record = True  # so that its losses have to be verified
    distrusted: tuple[str, ...] = ()  # tiers that are not used for a block this one gets wrong

    @property
    def taken(self) -> str:
        """The tier that found the last losses; this one, unless it has a fallback of its own."""
        return self.name

    @abstractmethod
    def plan(self, step: Step, span: Span) -> Tiling | str:
        """How a span is evaluated, or why not by this tier: nothing, if it is not for it.

        What is decided here follows from the whole span, whatever part of it is evaluated then.

        Raises:
            Refused: The record cannot answer, so that no tier that reads it could.
        """

    @abstractmethod
    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """How a span that was just evaluated was evaluated, and why not faster."""


def explain_fault(fault: Exception) -> str:
    """Why no kernel could be made."""
    if isinstance(fault, Unfusable):
        return str(fault)
    return f"no kernel could be made: {type(fault).__name__}: {fault}"


@dataclass(frozen=True)
class Fused(Tier):
    """A compiled kernel per block, planned once for the same operations."""

    memory_budget: int
    name = FUSED
    distrusted = (FUSED,)

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`."""
        key, plans = step.key(span), step.memory.plans
        if key not in plans:
            nodes = step.slice(span).nodes
            try:
                plans[key] = plan_kernel(step.candidates, step.record, nodes, span, REGISTRY)
            except Exception as fault:  # some are ours; there is a slower tier that is right
                reason = explain_fault(fault)
                step.memory.refusals[key, FUSED] = reason
                return reason
        try:
            kernel = Kernel(plans[key], step.tables)
            sums = {closing.output for closing in kernel.plan.program.closings}
            walk = None if step.record.result in sums else Walk(step.slice(span), REGISTRY)
            run = partial(self._run, step, kernel, walk)
            size = self._tile_size(step, kernel, span)
        except Unfusable as unfit:  # these values, not the operations
            return str(unfit)
        return tile_among_threads(span, size, run)

    def _tile_size(self, step: Step, kernel: Kernel, span: Span) -> int:
        """Of the whole block's tiles, of which the span may be a part."""
        shape = step.candidates.offsets.shape
        whole = step.candidates.find_block(span.block)
        return even_out(whole, kernel.tile_size(shape, self.memory_budget), shape[1] * shape[2])

    @staticmethod
    def _run(step: Step, kernel: Kernel, walk: Walk | None, tile: Span) -> Tensor:
        """The kernel's sums, carried on to the loss unless it is one of them."""
        sums, num = kernel.sums(step.candidates, tile), tile.end - tile.start
        if walk is None:
            return sums[step.record.result].reshape(num)
        env: dict[int, Change] = {index: Stacked(total) for index, total in sums.items()}
        return walk.finish(env, kernel.plan.after, None, num)

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`."""
        planned = step.memory.plans[step.key(span)]
        kernel = Kernel(planned, step.tables)
        tile = self._tile_size(step, kernel, span)
        cost = Cost(count_operations(planned.program), count_bytes(planned.program))
        return TierReport(FUSED, "", tile, cost)


@dataclass(frozen=True)
class Carried(Tier):
    """Columns while changes stay columns, then examples that differ, then whole values."""

    memory_budget: int
    name = INCREMENTAL
    # What a model hides from the record it may hide from a batched pass too.
    distrusted = (INCREMENTAL, BATCHED)

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`."""
        types = {step.candidates.base[name].dtype for name in step.names(span)}
        if types & HALVES:
            return "in half precision, the order of a sum shows"
        part = step.slice(span)
        if any(not step.record.unrolled.isdisjoint(node.outputs) for node in part.nodes):
            return ""  # torch's layer takes less time than its operations one by one
        walk = Walk(part, REGISTRY)
        run = partial(walk.losses, step.candidates)
        return tile_evenly(span, self._tile_size(step, walk, span), run)

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
        """See `Tier.describe`."""
        tile = self._tile_size(step, Walk(step.slice(span), REGISTRY), span)
        return TierReport(INCREMENTAL, reason, tile, Cost())


@dataclass(frozen=True)
class Plain(Tier):
    """An evaluator of whole forward passes."""

    name: str
    evaluator: Batched | OneByOne
    reads_record = False

    @property
    def taken(self) -> str:
        """See `Tier.taken`."""
        return self.evaluator.path

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`."""
        given = step.candidates, step.problem
        cut = partial(self.evaluator.tiles, *given, span)
        return Tiling(span, cut, partial(self.evaluator.losses, *given))

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`."""
        return self.evaluator.describe(step.candidates, step.problem, span, reason)
