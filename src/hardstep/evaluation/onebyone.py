"""One candidate at a time: the least memory, and no demands on the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate
from hardstep.evaluation.sharing import ByTiles, Questions, ask_once

ONE_BY_ONE = "one by one"


@dataclass(frozen=True)
class OneByOne:
    """A plain forward pass per candidate. For code that cannot be batched over parameters."""

    path: ClassVar[str] = ONE_BY_ONE  # for a progress bar
    tile: int = 32  # candidates whose changed tensors are built together, at most
    memory_budget: int = 4 << 30  # bytes that building them may take

    def losses(
        self, candidates: Candidates, problem: Problem, spans: Sequence[Span] | None = None
    ) -> Tensor:
        """A loop over candidates, or those of some spans."""
        losses: list[Tensor] = []
        for span in candidates.spans() if spans is None else spans:
            for tile in self.tiles(candidates, problem, span):
                changed = candidates.changed(tile)
                with isolate(problem.model) as restore:
                    for i in range(tile.end - tile.start):
                        restore()
                        one = {name: stack[i] for name, stack in changed.items()}
                        losses.append(problem.run(candidates.base, one, candidates.seed))
                del changed, one  # before the next ones are built
        return torch.stack(losses)

    def tiles(self, candidates: Candidates, problem: Problem, span: Span) -> list[Span]:
        """What is built together: rounding depends on it, so parts of a span are cut here."""
        del problem
        # Twice, since they are built from parts of their size.
        fitting = self.memory_budget // (2 * candidates.changed_bytes(span))
        return list(candidates.tiles(max(1, min(self.tile, fitting)), [span]))

    def open(self, candidates: Candidates, problem: Problem) -> ByTiles:
        """A step of which parts can be evaluated."""
        tiles = partial(self.tiles, candidates, problem)
        run = partial(self.losses, candidates, problem)
        return ByTiles(list(candidates.spans()), tiles, run)

    def ask(self, candidates: Candidates, problem: Problem) -> Questions:
        """One question."""
        del candidates, problem
        return ask_once()

    def describe(
        self, candidates: Candidates, problem: Problem, span: Span, reason: str
    ) -> TierReport:
        """How candidates are evaluated, and why not faster."""
        return TierReport(self.path, reason, self.tile, Cost())
