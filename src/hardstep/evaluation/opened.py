"""A step that has been recorded: the loop over tiers, for all of its candidates or a range.

What a range depends on is decided on whole blocks: which tier, where tiles begin, whether its first
losses are right. So every process that opens the same step finds the same losses for a candidate.
Where only an evaluation shows that a candidate does not fit a tier, and it was asked for a part of
a block, `Unfit` says so, and the question is asked again without that tier.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.batched import Batched
from hardstep.evaluation.blocks import Step, Tier
from hardstep.evaluation.candidates import Span
from hardstep.evaluation.fused import Unfusable
from hardstep.evaluation.sharing import Piece, Unfit
from hardstep.evaluation.streamed import STREAMED, Cut
from hardstep.evaluation.tiling import Tiling
from hardstep.evaluation.trace.nodes import Refused
from hardstep.evaluation.verify import find_contradiction, report, spread

RECORD = "record"  # stands for every tier that reads it
Note = Callable[[Span, Tier, str, float], None]


class Found(NamedTuple):
    """Losses of a part of a block, the tier that found them and why not the one before it."""

    start: int
    losses: Tensor
    tier: Tier
    reason: str


class OpenStep:
    """A step with the tiers that its blocks may take.

    Args:
        step: With its record.
        tiers: The fastest first; the last one refuses nothing.
        fallback: For losses that have lost digits.
        reason: Why the fastest tiers are not among them.
        note: Called for every block with its tier, the reason for it and the seconds it took.
    """

    def __init__(
        self, step: Step, tiers: Sequence[Tier], fallback: Batched, reason: str, note: Note
    ) -> None:
        self._step, self._tiers, self._fallback = step, tiers, fallback
        self._reason, self._note = reason, note
        self._plans: dict[tuple[Span, str], Tiling | str] = {}  # of the last block

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """See `sharing.Opened.piece`."""
        step, refused = self._step, question or {}
        spans = list(step.candidates.spans())
        if isinstance(step, Cut):  # blocks share forward passes, so they stay together
            if start > 0:
                return Piece(start, torch.empty(0))
            began, stop = time.perf_counter(), len(step.candidates)
            spans = step.parts(spans)
            self._note(spans[0], self._tiers[0], STREAMED, time.perf_counter() - began)
        found: list[Found] = []
        for span in spans:
            if span.end <= start or stop <= span.start:
                continue
            began = time.perf_counter()
            one = self.evaluate(span, start, stop, refused)
            found += [one] if len(one.losses) else []
            self._note(span, one.tier, one.reason, time.perf_counter() - began)
        if not found:
            return Piece(start, torch.empty(0))
        return Piece(found[0].start, torch.cat([one.losses for one in found]))

    def evaluate(
        self, span: Span, start: int, stop: int, refused: Mapping[tuple[int, str], str]
    ) -> Found:
        """The tiles of a block that begin at start..stop − 1, by the first tier that takes it."""
        reason, readable = self._reason, (span.block, RECORD) not in refused
        whole = start <= span.start and span.end <= stop
        for tier in self._tiers:
            if tier.reads_record and not readable:
                reason = refused.get((span.block, RECORD), reason)
                continue
            found: tuple[int, Tensor] | str
            try:
                if (span.block, tier.name) in refused:
                    found = refused[span.block, tier.name]
                else:
                    found = self._attempt(tier, span, start, stop)
            except Unfusable as unfit:  # these candidates, not the operations
                found = str(unfit)
                if not whole:
                    raise Unfit(span.block, tier.name, found) from None
            except Refused as refusal:
                found, readable = str(refusal), False
                if not whole:
                    raise Unfit(span.block, RECORD, found) from None
            if not isinstance(found, str):
                return Found(*found, tier, reason)
            reason = found or reason
        raise AssertionError("plain forward passes refuse nothing")

    def _attempt(self, tier: Tier, span: Span, start: int, stop: int) -> tuple[int, Tensor] | str:
        """Where a tier's losses begin, and the losses, or why they are not used."""
        step, key = self._step, (self._step.key(span), tier.name)
        if key in step.memory.refusals:
            return step.memory.refusals[key]
        tiling = self._plan(tier, span)
        if isinstance(tiling, str):
            return tiling
        tiles = tiling.tiles(start, stop)
        if tier.reads_record and key not in step.memory.verified:
            shown = tiles if tiles == [span] else _select(tiling, span)
            losses = self._run(tiling, shown)
            step.memory.verified.add(key)
            if not self._is_right(tier, span, shown, losses):
                return step.memory.refusals[key]
            if shown == tiles:
                return span.start, losses
        if not tiles:
            return start, torch.empty(0)
        return tiles[0].start, self._run(tiling, tiles)

    def _plan(self, tier: Tier, span: Span) -> Tiling | str:
        """A tier's plan; that of the last block is kept, since its parts come one after another."""
        key = span, tier.name
        if key not in self._plans:
            if any(other != span for other, _ in self._plans):
                self._plans.clear()
            self._plans[key] = tier.plan(self._step, span)
        return self._plans[key]

    def _run(self, tiling: Tiling, tiles: list[Span]) -> Tensor:
        return self._restore_digits(tiles, tiling.run(tiles))

    def _is_right(self, tier: Tier, span: Span, tiles: list[Span], losses: Tensor) -> bool:
        """Whether a tier's first losses of a block are those of plain forward passes."""
        step = self._step
        known = losses.new_full((span.end - span.start,), torch.nan)
        known[_list_numbers(tiles) - span.start] = losses
        wrong = find_contradiction(step.candidates, step.problem, span, known, step.base)
        if wrong is None:
            return True
        report(step.names(span), tier.name, wrong)
        for name in tier.distrusted:
            step.memory.refusals[step.key(span), name] = f"a wrong {tier.name} loss: {wrong}"
        return False

    def _restore_digits(self, tiles: list[Span], losses: Tensor) -> Tensor:
        """Losses, with those that are tiny beside the base's from whole forward passes."""
        step = self._step
        base = step.base  # losses are sums with it, and tiny ones have lost half of their digits
        if not base.is_floating_point():
            return losses
        limit = float(base.abs()) * torch.finfo(base.dtype).eps ** 0.5
        tiny = (losses.abs() < limit) & (losses != 0)
        if not bool(tiny.any()):
            return losses
        places = tiny.nonzero().flatten()
        numbers = _list_numbers(tiles)[places.cpu()].tolist()
        alone = [Span(tiles[0].block, number, number + 1) for number in numbers]
        whole = self._fallback.losses(step.candidates, step.problem, alone)
        return losses.index_put((places,), whole.to(losses.dtype))


def _list_numbers(tiles: list[Span]) -> Tensor:
    """The candidates of tiles."""
    return torch.cat([torch.arange(tile.start, tile.end) for tile in tiles])


def _select(tiling: Tiling, span: Span) -> list[Span]:
    """The tiles with the candidates by which a block is verified."""
    places = [span.start + place for place in spread(span.end - span.start)]
    return [t for t in tiling.cut() if any(t.start <= place < t.end for place in places)]
