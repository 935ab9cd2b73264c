"""The evaluator that computes what candidates change, and nothing else: its tiers.

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

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from hardstep._checks import check_positive
from hardstep.errors import HardstepError
from hardstep.evaluation.batched import BATCHED, Batched
from hardstep.evaluation.blocks import (
    ON_RECORD,
    Carried,
    Fused,
    Memory,
    Occurring,
    Plain,
    Step,
    Tier,
)
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events_tier import Events
from hardstep.evaluation.explain import (
    Describe,
    Evaluate,
    Explanation,
    TierReport,
    measure_step,
)
from hardstep.evaluation.gathered_tier import Gathered
from hardstep.evaluation.memory import Findings
from hardstep.evaluation.onebyone import ONE_BY_ONE, OneByOne
from hardstep.evaluation.opened import OpenStep
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sharing import Opened, Piece, Questions, ask_without_misfits
from hardstep.evaluation.streamed import STREAMED, Cut, Streamed, cut
from hardstep.evaluation.trace.nodes import Record, Refused, TooLarge
from hardstep.evaluation.trace.record import record
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
        self._occurring: Mapping[str, Occurring] = {}  # rows of tables in the last step, by tensor
        self._spent: dict[str, float] = defaultdict(float)  # seconds of the last step, by tier
        self._memories: Findings[BoundSubspace, Memory] = Findings()
        self._ready: tuple[Problem, int, Record | str] | None = None  # for the next step

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
        shares = "; ".join([shares, *(f"{name}: {rows}" for name, rows in self._occurring.items())])
        fast = (*ON_RECORD, STREAMED)
        slow = [(names, why) for names, why in self.notes.items() if why not in fast]
        if not slow:
            return shares
        names, why = slow[0]
        blocks = f"{len(slow)} of {len(self.notes)} blocks"
        return f"{shares}; whole forward passes for {blocks}; {names[0]}: {why}"

    @property
    def idle(self) -> int:
        """Candidates of the last step that change rows which no example of the batch reads."""
        return sum(rows.idle for rows in self._occurring.values())

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
        return self.open(candidates, problem).piece({}, 0, len(candidates)).rows

    def ask(self, candidates: Candidates, problem: Problem) -> Questions:
        """One question; another one for every tier that candidates turn out not to fit."""
        del candidates, problem
        return ask_without_misfits()

    def prepare(self, candidates: Candidates, problem: Problem) -> None:
        """Record a step whose candidates are not known yet; `candidates` has none of them.

        Raises:
            Exception: Whatever recording raises.
        """
        self._ready = None
        if not candidates.subspace.everywhere:
            self._ready = problem, candidates.seed, self._record(candidates, problem)

    def open(self, candidates: Candidates, problem: Problem) -> Opened:
        """A step of which parts can be evaluated."""
        step = self._begin(candidates, problem)
        self._spent.clear()
        self._cut = step.reason if isinstance(step, Cut) else ""
        self._occurring = {} if isinstance(step, str) else step.memory.occurring
        if isinstance(step, str):
            self.notes = {block.names: step for block in candidates.subspace.blocks}
            return _Plain(self.fallback.open(candidates, problem), self._note_fallback)
        return self._open(step)

    def _open(self, step: Step) -> OpenStep:
        reason = "" if self.fused else "kernels are switched off"

        def note(span: Span, tier: Tier, why: str, seconds: float) -> None:
            self._spent[tier.taken] += seconds
            self.notes[step.names(span)] = tier.name if tier.reads_record else why

        return OpenStep(step, self._tiers(step), self.fallback, reason, note)

    def _note_fallback(self) -> None:
        self._spent[self.fallback.path] = 1.0

    def _begin(self, candidates: Candidates, problem: Problem) -> Step | str:
        """The step with its record, or why there is none (an exception would keep its values)."""
        if candidates.subspace.everywhere:
            return "a candidate moves every tensor, so there is nothing to keep"
        memory = self._memories.setdefault(candidates.subspace, Memory())
        try:
            written = self._take_ready(candidates, problem)
            if written is None:
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

    def _take_ready(self, candidates: Candidates, problem: Problem) -> Record | str | None:
        """What has been recorded for this very step."""
        ready, self._ready = self._ready, None
        if ready is None or ready[0] is not problem or ready[1] != candidates.seed:
            return None
        return ready[2]

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
        found = self._open(step).evaluate(span, span.start, span.end, {})

        def describe() -> TierReport:
            written = None if isinstance(step, Cut) else step.record
            return found.tier.describe(step, span, found.reason)._replace(record=written)

        return describe


class _Plain:
    """A step of whole forward passes."""

    def __init__(self, opened: Opened, note: Callable[[], None]) -> None:
        self._opened, self._note = opened, note

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """See `Opened.piece`."""
        piece = self._opened.piece(question, start, stop)
        self._note()
        return piece
