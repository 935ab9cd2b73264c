"""The evaluator that computes what candidates change, and nothing else: one loop over tiers.

Per step: record one base forward pass. Per block of parameters, the first of these that applies:

    fused        the slice of the record that the block reaches, compiled into one kernel
    events       the same, following single numbers that differ, through convolutions and time
    gathered     changed examples of many candidates in one batch: attention, embeddings
    incremental  changes carried through the slice operation by operation
    batched      whole forward passes, many at once
    one by one   whole forward passes as a user would run them

Where the record does not fit into memory, one tier stands for the first four:

    streamed     changes carried along with forward passes of which nothing is kept

A tier that does not evaluate a block says why, and the next one is tried. The first losses that a
block gets from one of the first four are compared with those of plain forward passes; should they
differ, the tier is not used for that block again.

`notes` says which tier a block took, or why it took a slow one, and `note` how the time of a step
was shared among tiers; `explain` adds what each block costs. The clock decides nothing.
"""

import time
from collections import defaultdict
from functools import partial

import torch
from torch import Tensor

from hardstep._checks import check_positive
from hardstep.errors import HardstepError
from hardstep.evaluation.batched import BATCHED, Batched
from hardstep.evaluation.blocks import (
    ON_RECORD,
    Carried,
    Events,
    Fused,
    Memory,
    Plain,
    Step,
    Tier,
)
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import (
    Describe,
    Evaluate,
    Explanation,
    TierReport,
    measure_step,
)
from hardstep.evaluation.gathered_tier import Gathered
from hardstep.evaluation.memory import Findings
from hardstep.evaluation.objectives import Problem
from hardstep.evaluation.onebyone import ONE_BY_ONE, OneByOne
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.streamed import STREAMED, Cut, Streamed, cut
from hardstep.evaluation.trace.record import Record, Refused, TooLarge, record
from hardstep.evaluation.verify import find_contradiction, report
from hardstep.subspaces import BoundSubspace


class Incremental:
    """Exact losses from what a probe changes; the default.

    Args:
        memory_budget: Bytes that the record may keep, and that the largest value of a tile may
            take (several are alive at once). Of a forward pass that keeps more there is no record.
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
        self._cut = ""  # why there was no record in the last step
        self._remarks: list[str] = []  # on what was searched in the last step
        self._spent: dict[str, float] = defaultdict(float)  # seconds of the last step, by tier
        self._memories: Findings[BoundSubspace, Memory] = Findings()

    def __repr__(self) -> str:
        return f"Incremental(memory_budget={self.memory_budget}, fused={self.fused})"

    @property
    def note(self) -> str:
        """How the last step was evaluated, in a line."""
        if not self.notes:
            return "not used yet"
        shares = self._share_time(" of the time")
        if self._cut:
            shares = f"{shares}; {self._cut}"
        shares = "; ".join([shares, *self._remarks])
        fast = (*ON_RECORD, STREAMED)
        slow = [(names, why) for names, why in self.notes.items() if why not in fast]
        if not slow:
            return shares
        names, why = slow[0]
        blocks = f"{len(slow)} of {len(self.notes)} blocks"
        return f"{shares}; whole forward passes for {blocks}; {names[0]}: {why}"

    @property
    def path(self) -> str:
        """The same in a few words, for a progress bar."""
        return self._share_time()

    def _share_time(self, unit: str = "") -> str:
        """The tiers of the last step, slowest first, with their shares of its time."""
        total = sum(self._spent.values()) or 1.0
        slowest = sorted(self._spent, key=lambda tier: -self._spent[tier])
        shares = {tier: round(100 * self._spent[tier] / total) for tier in slowest}
        shown = [(tier, share) for tier, share in shares.items() if share]
        if len(shown) < 2:
            return next(iter(slowest), "")
        first, *others = (f"{tier} {share} %" for tier, share in shown)
        return ", ".join([first + unit, *others])

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """Losses block by block."""
        step = self._begin(candidates, problem)
        self._spent.clear()
        self._cut = step.reason if isinstance(step, Cut) else ""
        self._remarks = []
        if isinstance(step, str):
            self.notes = {block.names: step for block in candidates.subspace.blocks}
            losses = self.fallback.losses(candidates, problem)
            self._spent[self.fallback.path] = 1.0
            return losses
        spans = list(candidates.spans())
        if isinstance(step, Cut):
            began = time.perf_counter()
            spans = step.parts(spans)
            self._spent[STREAMED] += time.perf_counter() - began
        pieces = []
        for span in spans:
            began = time.perf_counter()
            losses, tier, reason = self._evaluate(step, span)
            pieces.append(self._restore_digits(step, span, losses))
            self._spent[tier.taken] += time.perf_counter() - began
            self.notes[step.names(span)] = tier.name if tier.reads_record else reason
        self._remarks = list(step.memory.remarks.values())
        return torch.cat(pieces)

    def _begin(self, candidates: Candidates, problem: Problem) -> Step | str:
        """The step with its record, or why there is none (an exception would keep its values)."""
        if candidates.subspace.everywhere:
            return "a candidate moves every tensor, so there is nothing to keep"
        memory = self._memories.setdefault(candidates.subspace, Memory())
        try:
            written = self._record(candidates, problem)
            if isinstance(written, Record):
                return Step(candidates, problem, written, memory)
            return cut(candidates, problem, memory, written, self.memory_budget, self.fallback)
        except HardstepError:
            raise
        except Refused as reason:
            return str(reason)
        except Exception as reason:  # a real fault of the model raises again in the fallback
            return f"{type(reason).__name__}: {reason}"

    def _record(self, candidates: Candidates, problem: Problem) -> Record | str:
        """The forward pass, or that it does not fit; nothing of it is alive then."""
        try:
            return record(
                problem, candidates.base, candidates.seed, self.memory_budget, REGISTRY.costly
            )
        except TooLarge as reason:
            return str(reason)

    def _tiers(self, step: Step) -> list[Tier]:
        """All that a step can take, the fastest first; the last one refuses nothing."""
        plain: list[Tier] = [Plain(BATCHED, self.fallback), Plain(ONE_BY_ONE, OneByOne())]
        if isinstance(step, Cut):
            return [Streamed(), *plain]
        budget = self.memory_budget
        kernels: list[Tier] = [Fused(budget), Events(budget)] if self.fused else []
        return [*kernels, Gathered(budget), Carried(budget), *plain]

    def _evaluate(self, step: Step, span: Span) -> tuple[Tensor, Tier, str]:
        """Losses of a block, the tier that found them and why it was not the one before it."""
        reason, readable = "" if self.fused else "kernels are switched off", True
        for tier in self._tiers(step):
            if tier.reads_record and not readable:
                continue
            try:
                found = self._attempt(tier, step, span)
            except Refused as refusal:
                found, readable = str(refusal), False
            if isinstance(found, Tensor):
                return found, tier, reason
            reason = found or reason
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

        def begin() -> Evaluate:
            step = self._begin(candidates, problem)
            if isinstance(step, str):
                return partial(self.fallback.run, candidates, problem, step)
            return partial(self._run, step)

        return measure_step(candidates, problem, begin)

    def _run(self, step: Step, span: Span) -> Describe:
        """Evaluate some candidates of a block; what is returned describes how it was done."""
        _, tier, reason = self._evaluate(step, span)

        def describe() -> TierReport:
            written = None if isinstance(step, Cut) else step.record
            return tier.describe(step, span, reason)._replace(record=written)

        return describe
