"""How the losses of a step are asked for, so that it does not matter who answers.

    open   candidates → what answers for any range of them
    ask    candidates → questions, each answered for all of them, and losses in the end

An answer has a row per candidate, and a row is the same bits in whatever range it is asked for. So
workers may share a step in any way, answer twice, or be replaced. The local evaluator is the case
of one range. Nearly all questions are the first one, None; an agent asks for more episodes until
they suffice, an evaluator for another tier where a block does not fit the one that was planned.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span

Questions = Generator[Any, Tensor, Tensor]  # rows of all candidates in, losses at the end


class Piece(NamedTuple):
    """The rows of the candidates from `start` on; none if no tile begins in the range."""

    start: int
    rows: Tensor  # (n,) or (n, k)


class Unfit(Exception):
    """Some candidates of a block do not fit a tier, so that none of the block may take it."""

    def __init__(self, block: int, tier: str, reason: str) -> None:
        super().__init__(block, tier, reason)
        self.block, self.tier, self.reason = block, tier, reason


class Opened(Protocol):
    """A step that answers for parts of it."""

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """What tiles that begin at candidates start..stop − 1 answer.

        Raises:
            Unfit: The question has to be asked again without a tier.
        """
        ...


@runtime_checkable
class Divisible(Protocol):
    """An objective whose candidates can be shared out."""

    def open(self, candidates: Candidates) -> Opened:
        """What answers for any range of them."""
        ...

    def ask(self, candidates: Candidates) -> Questions:
        """Questions, and the losses that follow from their answers."""
        ...


class Answers(Protocol):
    """Whatever answers one question for all candidates; it may raise `Unfit`."""

    def __call__(self, question: Any) -> Tensor:
        """A row per candidate."""
        ...


def follow(questions: Questions, answer: Answers) -> Tensor:
    """The losses that questions lead to."""
    question = next(questions)
    while True:
        try:
            rows = answer(question)
        except Unfit as unfit:
            question = questions.throw(unfit)
            continue
        try:
            question = questions.send(rows)
        except StopIteration as end:
            losses: Tensor = end.value
            return losses


def run_alone(objective: Divisible, candidates: Candidates) -> Tensor:
    """Losses of all candidates, here."""
    opened, num = objective.open(candidates), len(candidates)
    return follow(objective.ask(candidates), lambda question: opened.piece(question, 0, num).rows)


def ask_for_rows() -> Questions:
    """One question, whose answer is the result."""
    rows = yield None
    return rows


def ask_once() -> Questions:
    """The questions of whatever answers with losses."""
    rows = yield None
    return rows.reshape(len(rows))


def ask_without_misfits() -> Questions:
    """The same for tiers: blocks and tiers that turned out not to fit, and why."""
    refused: dict[tuple[int, str], str] = {}
    while True:
        try:
            rows = yield dict(refused)
        except Unfit as unfit:
            refused[unfit.block, unfit.tier] = unfit.reason
        else:
            return rows.reshape(len(rows))


@dataclass(frozen=True, eq=False)
class ByParticles:
    """Any objective, shared out by particles: the losses of one are asked for together."""

    objective: Any  # has losses(candidates)

    def ask(self, candidates: Candidates) -> Questions:
        """One question."""
        del candidates
        return ask_once()

    def open(self, candidates: Candidates) -> Opened:
        """Every range is a step of its own."""
        return _Particles(self.objective, candidates)


@dataclass(frozen=True, eq=False)
class _Particles:
    objective: Any
    candidates: Candidates

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """See `Opened.piece`."""
        del question
        particles, vertices, probes, _ = self.candidates.offsets.shape
        each = vertices * probes
        first, last = (min(particles, -(-place // each)) for place in (start, stop))
        if first == last:
            return Piece(first * each, torch.empty(0))
        some = replace(
            self.candidates,
            asked=self.candidates.asked[first:last],
            offsets=self.candidates.offsets[first:last],
        )
        return Piece(first * each, self.objective.losses(some))


@dataclass(frozen=True, eq=False)
class ByTiles:
    """Candidates of an evaluator that cuts spans at fixed places.

    Args:
        spans: Of all candidates.
        tiles: Where a span may be cut.
        losses: Of some spans.
    """

    spans: Sequence[Span]
    tiles: Callable[[Span], list[Span]]
    losses: Callable[[list[Span]], Tensor]

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """See `Opened.piece`."""
        del question
        chosen: list[Span] = []
        for span in self.spans:
            if start <= span.start and span.end <= stop:
                chosen.append(span)
            elif span.start < stop and start < span.end:
                chosen += [tile for tile in self.tiles(span) if start <= tile.start < stop]
        if not chosen:
            return Piece(start, torch.empty(0))
        return Piece(chosen[0].start, self.losses(chosen))


def share(objective: Any) -> Divisible:
    """An objective as one that can be shared out."""
    return objective if isinstance(objective, Divisible) else ByParticles(objective)


def cut_evenly(num: int, pieces: int) -> Iterator[tuple[int, int]]:
    """Ranges of 0..num, as even as whole numbers are; none of them empty."""
    pieces = max(1, min(num, pieces))
    for i in range(pieces):
        yield i * num // pieces, (i + 1) * num // pieces
