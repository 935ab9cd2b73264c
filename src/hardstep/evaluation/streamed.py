"""The tier for forward passes whose record does not fit: changes follow the pass while it runs.

A record is cut down to what is alive at one moment. That costs a forward pass of the base for every
few tiles, where a record costs one for all; tiles of several blocks share a pass. The losses are
those of the incremental tier.

Whether plain forward passes would take less is decided by counting operations, per block and step,
on the block's first tile. Neither a clock nor an earlier step has a say, so that a run that is
resumed takes the tiers, and gets the bits, of one that was not interrupted.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from hardstep.errors import HardstepError
from hardstep.evaluation.batched import BATCHED, Batched, find_shapes
from hardstep.evaluation.blocks import MAX_TILE, TILE_BYTES, Memory, Step, Tier
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.incremental.lanes import Lane
from hardstep.evaluation.incremental.stream import follow
from hardstep.evaluation.incremental.survey import Reach, survey
from hardstep.evaluation.incremental.walk import start_changes
from hardstep.evaluation.memory import LiveBytes
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.tiling import Tiling
from hardstep.evaluation.trace.nodes import Record, Refused

STREAMED = "streamed"
STREAM_COST = 1.25  # operations of a forward pass in the time of one that follows it, about
MUCH = "a candidate changes so much that whole forward passes take less"
CUT = "cut: changes follow the forward pass, and no record of it is kept"
ALONE = "no candidate fits into the memory budget beside the forward pass"


@dataclass(frozen=True)
class Cut(Step):
    """A step of whose record nothing is kept."""

    reason: str  # why not
    memory_budget: int
    reach: Reach
    fallback: Batched
    found: dict[Span, Tensor | str] = field(default_factory=dict)  # losses, or why there are none
    started: dict[int, int] = field(default_factory=dict)  # bytes of a block's changed tensors
    passed: list[Tensor] = field(default_factory=list)  # the base's loss, pass by pass

    @cached_property
    def base(self) -> Tensor:
        """The base's loss."""
        if self.passed:
            return self.passed[0]
        return self.problem.run(self.candidates.base, {}, self.candidates.seed)

    @property
    def room(self) -> int:
        """Bytes beside the forward pass."""
        return max(0, self.memory_budget - self.reach.base_bytes)

    def tile_size(self, span: Span) -> int:
        """Candidates of a block that fit beside the forward pass; 0 if none does."""
        size = TILE_BYTES // max(1, int(self.reach.largest[span.block]))
        return min(MAX_TILE, max(1, size), self.room // self._bytes_of(span))

    def _bytes_of(self, span: Span) -> int:
        """What one candidate of a block takes, at most."""
        if span.block not in self.started:
            with LiveBytes() as live:
                start_changes(self.candidates, Span(span.block, span.start, span.start + 1))
            self.started[span.block] = live.peak
        return max(1, self.started[span.block] + int(self.reach.nbytes[span.block]))

    def parts(self, spans: list[Span]) -> list[Span]:
        """Evaluate spans; cut between candidates that have losses and those that do not."""
        pieces: dict[Span, list[Tensor]] = {span: [] for span in spans}
        refused: dict[Span, str] = {}
        waiting: deque[tuple[Span, Span]] = deque()
        for span in spans:
            size = self.tile_size(span)
            if size:
                waiting.extend((span, tile) for tile in span.tiles(size))
            else:
                refused[span] = ALONE
        while waiting:
            chosen = self._fill(waiting)
            lanes = self._follow([tile for _, tile in chosen])
            for (span, _), lane in zip(chosen, lanes, strict=True):
                if span in refused:
                    continue
                if lane.losses is None:
                    refused[span] = lane.reason
                    continue
                if not pieces[span] and self._takes_much(span, lane, sum(one.num for one in lanes)):
                    refused[span] = MUCH
                pieces[span].append(lane.losses)
            while waiting and waiting[0][0] in refused:
                waiting.popleft()
        return [part for span in spans for part in self._split(span, pieces[span], refused)]

    def _fill(self, waiting: deque[tuple[Span, Span]]) -> list[tuple[Span, Span]]:
        """The next tiles that fit beside one forward pass."""
        chosen: list[tuple[Span, Span]] = []
        taken = 0
        while waiting:
            span, tile = waiting[0]
            taken += (tile.end - tile.start) * self._bytes_of(span)
            if chosen and taken > self.room:
                break
            chosen.append(waiting.popleft())
        return chosen

    def _follow(self, tiles: list[Span]) -> list[Lane]:
        """One forward pass for some tiles."""
        lanes = [Lane(self.candidates, tile, REGISTRY) for tile in tiles]
        try:
            self.passed.append(follow(self.problem, self.candidates, lanes, REGISTRY))
        except HardstepError:
            raise
        except Exception as fault:  # a real fault of the model raises again in the fallback
            why = str(fault) if isinstance(fault, Refused) else f"{type(fault).__name__}: {fault}"
        else:
            return lanes
        for lane in lanes:
            lane.losses, lane.reason = None, lane.reason or why
        return lanes

    def _takes_much(self, span: Span, lane: Lane, asked: int) -> bool:
        """Whether plain forward passes take less; their tiles share what is in front of a block."""
        whole, own = self.reach.base_work, float(self.reach.work[span.block])
        report = self.fallback.describe(self.candidates, self.problem, span, "")
        tile = report.tile if report.path == BATCHED else 1
        plain = own + (whole - own) / tile
        return STREAM_COST * (lane.work / lane.num + whole / asked) > plain

    def _split(self, span: Span, pieces: list[Tensor], refused: dict[Span, str]) -> list[Span]:
        """The part of a span that has losses, and the part that has a reason."""
        middle = span.start + sum(map(len, pieces))
        done, rest = Span(span.block, span.start, middle), Span(span.block, middle, span.end)
        parts = []
        if pieces:
            self.found[done] = torch.cat(pieces)
            parts.append(done)
        if middle < span.end:
            self.found[rest] = refused[span]
            parts.append(rest)
        return parts


def cut(
    candidates: Candidates,
    problem: Problem,
    memory: Memory,
    reason: str,
    memory_budget: int,
    fallback: Batched,
) -> Cut | str:
    """The step without a record, or why whole forward passes have to do.

    Raises:
        Refused: The forward pass cannot be followed.
    """
    shapes = find_shapes(problem)
    if shapes not in memory.reaches:
        memory.reaches[shapes] = survey(problem, candidates)
    record = Record((), (), {}, 0, signature=f"cut {shapes}")
    reach = memory.reaches[shapes]
    why = f"{CUT}: {reason}"
    step = Cut(candidates, problem, record, memory, why, memory_budget, reach, fallback)
    return step if any(map(step.tile_size, candidates.spans())) else reason


@dataclass(frozen=True)
class Streamed(Tier):
    """Changes carried along with forward passes of the base."""

    name = STREAMED
    distrusted = (STREAMED, BATCHED)

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`; the losses are known by then, since blocks share forward passes."""
        assert isinstance(step, Cut)
        if span not in step.found:
            parts = step.parts([span])
            if parts != [span]:
                reason = step.found[parts[-1]]
                assert isinstance(reason, str)
                return reason
        found = step.found[span]
        return found if isinstance(found, str) else Tiling(span, lambda: [span], lambda _: found)

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`."""
        assert isinstance(step, Cut)
        return TierReport(STREAMED, step.reason, step.tile_size(span), Cost())
