"""What travels between driver and workers. Every message names the run, the step and the tile."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from hardstep import __version__
from hardstep.distributed.tensors import Frozen

VERSION = f"{__version__} with torch {torch.__version__}"  # the same for driver and workers


class Key(NamedTuple):
    """What an answer is an answer to; any other is dropped."""

    run: str
    step: int  # questions that the run has asked
    start: int
    stop: int


@dataclass(frozen=True)
class Digests:
    """What the tensors of a step are, by number; with a move, what the searched ones were."""

    now: dict[int, bytes]
    searched: tuple[tuple[str, int], ...] = ()
    before: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class StepMessage:
    """A step without its candidates, which is all that the base forward pass takes."""

    step: int
    threads: int
    parts: tuple[bytes, ...]  # digests of the job's
    digests: Digests
    asked: bytes  # packed, without candidates
    state: dict[str, Frozen]  # of the subspace
    move: Frozen | None  # in coordinates
    values: bytes  # tensors that changed, if they are few


class Question(NamedTuple):
    """The candidates of a step, and what is asked about them."""

    asked: Frozen | None
    offsets: Frozen | None
    question: Any


class Step(NamedTuple):
    """A step on its way, pickled once."""

    version: str
    message: bytes = b""  # a StepMessage
    question: bytes = b""


class Ahead(NamedTuple):
    """What a worker can do before it is sent a step: move, and run the base forward pass.

    Nothing relies on it. The step says what the tensors have to be, as if this had not been sent.
    """

    after: int  # the question that was before, whose weights are moved
    step: int | None  # the optimizer's that made the move, after which bases may be drawn again
    move: Frozen
    asked: bytes  # as in the step; nothing, if only the move is known
    threads: int


@dataclass(frozen=True)
class Task:
    """A tile to evaluate, with what the worker is known to lack.

    The step travels with a tile for every worker; the other tiles of a step name it only. An empty
    tile announces a step: a worker prepares for it while the driver draws probes.
    """

    key: Key
    step: Step
    parts: tuple[bytes, ...] = ()  # of the job, packed
    values: bytes = b""  # tensors, packed
    ahead: Ahead | None = None

    @property
    def nbytes(self) -> int:
        """What it weighs on its way."""
        step = len(self.step.message) + len(self.step.question)
        ahead = len(self.ahead.asked) + len(self.ahead.move.contents) if self.ahead else 0
        return step + ahead + sum(map(len, self.parts)) + len(self.values)


class Answer(NamedTuple):
    """The rows of a tile, float64 in the order of candidates."""

    key: Key
    start: int
    shape: tuple[int, ...]
    rows: bytes
    seconds: float
    opening: float  # of these, until the first tile began
    worker: str


class Need(NamedTuple):
    """A worker that cannot evaluate yet: what has to be sent along."""

    key: Key
    step: bool  # it has only heard of its number
    parts: bool  # of the job
    tensors: tuple[int, ...]
    moved: bool  # a move was made, and did not lead to the driver's weights
    worker: str


class Misfit(NamedTuple):
    """Candidates that do not fit a tier; see `evaluation.sharing.Unfit`."""

    key: Key
    block: int
    tier: str
    reason: str
    worker: str
