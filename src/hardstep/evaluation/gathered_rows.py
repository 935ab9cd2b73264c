"""Candidates that change nothing but rows of tables: which examples each reaches, and tiles.

A row that no example reads leaves the base as it is. Words are rare in different degrees, so tiles
are cut by the examples that they reach, not by candidates.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor

from hardstep.evaluation.blocks import Occurring, Step
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.gathered import Gathering
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.tiling import Tiling

Run = Callable[[Candidates, Span], Tensor]
EXAMPLES_BYTES = 4 << 20  # the largest value of the examples that run together


class Reading:
    """How many examples the candidates of a span reach.

    Args:
        step: Whose candidates they are.
        span: Whole particles.
        read: How many examples each candidate reaches; all of a particle reach the same.
    """

    def __init__(self, step: Step, span: Span, read: Tensor) -> None:
        self.candidates, self.base, self.span = step.candidates, step.base, span
        self.each = step.candidates.per_particle
        self.read = read.reshape(-1, self.each)  # (particles, candidates of each)

    @property
    def mean(self) -> float:
        """Examples that a candidate reaches, on average."""
        return float(self.read.double().mean())

    @cached_property
    def usual(self) -> Span | None:
        """The particle that reaches about as many as those do that reach any; if there are any."""
        own = self.read[:, 0].double()
        if not bool((own > 0).any()):
            return None
        place = int((own - own[own > 0].mean()).abs().argmin())
        start = self.span.start + place * self.each
        return Span(self.span.block, start, start + self.each)

    @property
    def occurring(self) -> Occurring:
        """How many of the rows of a table are searched."""
        rows, read = self.candidates.changed_rows(self.span), self.read.flatten() > 0
        assert rows is not None
        found, searched = (len(torch.unique(some)) for some in (rows[read], rows))
        return Occurring(found, searched, int((~read).sum()))

    def cut(self, gathering: Gathering) -> list[Span]:
        """Tiles of whole particles, at least one each, that reach about as many examples."""
        most = max(1, EXAMPLES_BYTES * gathering.scene.num // gathering.walk.largest)
        total = self.read.sum(dim=1).cumsum(0)
        ends = torch.div((total - 1).clamp_min(0), most, rounding_mode="floor")
        _, counts = torch.unique_consecutive(ends, return_counts=True)
        tiles, start = [], self.span.start
        for count in counts.tolist():
            tiles.append(Span(self.span.block, start, start + self.each * count))
            start += self.each * count
        return tiles

    def tile(self, tiles: list[Span], run: Run) -> Tiling:
        """These tiles; candidates that reach no example are the base."""

        def run_all(wanted: list[Span]) -> Tensor:
            parts = [p for tile in wanted for p in (tiles if tile == self.span else [tile])]
            return torch.cat([self._run_tile(part, run) for part in parts])

        return Tiling(self.span, lambda: tiles, run_all)

    def _run_tile(self, tile: Span, run: Run) -> Tensor:
        losses = self.base.expand(tile.end - tile.start).clone()
        first = (tile.start - self.span.start) // self.each
        active = self.read[first : first + (tile.end - tile.start) // self.each, 0] > 0
        places = active.repeat_interleave(self.each).nonzero()[:, 0]
        if len(places):
            some = _choose(self.candidates, tile, active)
            part = Span(tile.block, 0, len(places))
            losses[places] = torch.cat(part.evaluate(partial(run, some), len(places)))
        return losses


def find_reading(step: Step, span: Span, gathering: Gathering) -> Reading | None:
    """What a span reads, if its candidates change nothing but rows of tables."""
    units, each = step.candidates.changed_rows(span), step.candidates.per_particle
    if units is None or span.start % each or span.end % each:
        return None
    sources = [step.record.sources[name] for name in step.names(span)]
    total: Tensor | None = None
    for node in gathering.plan.nodes:
        if not set(node.inputs) & set(sources):
            continue
        call = gathering.scene.calls.get(node.outputs[0])
        if call is None or call.reaches is None or len(sources) != 1:
            return None
        table = step.record.values[sources[0]]
        rows = Column(0, torch.arange(len(table)), table)
        found = call.reaches(gathering.scene, rows)
        total = found if total is None else total | found
    return None if total is None else Reading(step, span, total.sum(dim=1)[units])


def _choose(candidates: Candidates, span: Span, active: Tensor) -> Candidates:
    """The candidates of some of the particles of a span."""
    each = candidates.per_particle
    own = slice(span.start // each, span.end // each)
    asked = candidates.asked[own][active.to(candidates.asked.device)]
    return replace(candidates, asked=asked, offsets=candidates.offsets[own][active])
