"""The driver: turns a step into messages, and what workers answer into losses.

An engine stands where an evaluator does: `PolyStep(model, evaluator=Futures(executor))`. Closures,
functions and other objectives of `step` go the same way, and so do points of `minimize`.
"""

import hashlib
import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep._checks import check_count
from hardstep.distributed.counts import Counts
from hardstep.distributed.handout import Handout
from hardstep.distributed.jobs import Asked, PointsJob, SearchJob, Space, check_closure, make_job
from hardstep.distributed.messages import (
    VERSION,
    Digests,
    Key,
    Need,
    Question,
    Step,
    StepMessage,
    Task,
)
from hardstep.distributed.patience import Patience
from hardstep.distributed.tensors import Known, TensorTable, freeze, pack, pack_values
from hardstep.errors import ConfigError
from hardstep.evaluation import (
    Candidates,
    ClosureObjective,
    Evaluator,
    Explanation,
    Incremental,
    ModelObjective,
    Objective,
    Problem,
    own_evaluator,
)
from hardstep.evaluation.sharing import ask_for_rows, cut_evenly, follow, share

TILES = 8  # per worker and step: few enough to cost little, enough to even out
SENT_ALONG = 256 << 10  # bytes of changed tensors that travel with every tile; more is asked for


class Engine(ABC):
    """Workers that evaluate candidates.

    Args:
        evaluator: How a worker computes losses of a model; the one that the model brings along, or
            `Incremental()`, if left out.
        patience: What is done when workers fail.
        tiles: Per worker and step.
    """

    def __init__(
        self,
        evaluator: Evaluator | None = None,
        patience: Patience | None = None,
        tiles: int = TILES,
    ) -> None:
        check_count(f"{type(self).__name__}: tiles", tiles)
        self._patience = patience or Patience()
        self.counts = Counts(quorum=self._patience.quorum)
        self._evaluator = evaluator
        self._usual: Evaluator = Incremental()
        self._tiles = tiles
        self._run = uuid.uuid4().hex
        self._step = 0
        self._flying = 0
        self._table = TensorTable()
        self._parts: tuple[_Part, ...] = ()
        self._sent: dict[int, bytes] = {}  # digests of tensors in the last question
        self._announced: _Announced | None = None
        self._cuts: dict[tuple[int, int], list[tuple[int, int]]] = {}  # of the last question

    # -- what an engine adds --------------------------------------------------------------------

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many there are, about."""

    @abstractmethod
    def submit(self, task: Task) -> "Future[Any]":
        """Hand out a tile."""

    @abstractmethod
    def renew(self, error: BaseException) -> None:
        """Make the engine usable again after it broke, or raise `WorkerError`."""

    @abstractmethod
    def close(self) -> None:
        """End what this engine has started."""

    def is_loss(self, error: BaseException) -> bool:
        """Whether an exception of a tile means that its worker is gone."""
        del error
        return False

    def unwrap(self, error: Exception) -> Exception:
        """The exception that a tile raised, without what the engine has put around it."""
        return error

    def tend(self) -> None:  # noqa: B027  # most engines have nothing to do
        """Called a few times a second while tiles are out."""

    def prepare(self) -> None:  # noqa: B027  # most engines have nothing to do
        """Called before every question: take in workers that have joined."""

    # -- what users and optimizers call -------------------------------------------------------

    @property
    def path(self) -> str:
        """A few words for a progress bar."""
        return self.counts.format(self.workers, self._flying)

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,); makes an engine an evaluator."""
        inner = self._evaluator or own_evaluator(problem.model) or self._usual
        return self.spread(ModelObjective(problem, inner)).losses(candidates)

    def announce(self, candidates: Candidates, problem: Problem) -> None:
        """Let workers prepare for a step, of which all but the candidates is known."""
        inner = self._evaluator or own_evaluator(problem.model) or self._usual
        if not hasattr(inner, "prepare"):
            return
        self.prepare()
        job, asked = make_job(ModelObjective(problem, inner), candidates)
        step, known = self._begin(job, asked, candidates.move)
        self._announced = _Announced(problem, candidates.seed, candidates.move, step, known)
        tiles = max(map(len, self._cuts.values()), default=0) or self.workers
        for _ in range(min(self.workers, tiles)):  # more would have nothing to do
            task = Task(Key(self._run, self._step, 0, 0), step)
            with suppress(BrokenExecutor):  # which whoever asks next will meet, too
                self.submit(task)
                self.counts.bytes_sent += task.nbytes

    def spread(self, objective: Objective) -> "Spread":
        """The same objective, evaluated by workers."""
        return Spread(self, objective)

    def evaluate(
        self,
        function: Callable[[NDArray[np.float64]], Any],
        points: NDArray[np.float64],
        *,
        name: str = "the function",
        forgiving: bool = False,
    ) -> NDArray[np.float64]:
        """The values of a function at points (N, dim), for instance of `AskTell.ask()`.

        Args:
            function: Of a vector; returns a number.
            points: One per row.
            name: Of the function, in messages.
            forgiving: Whether a point at which it raises counts as NaN.

        Returns:
            Two columns (N, 2): values, and 1 where the function raised.
        """
        job, asked = PointsJob(function, name, forgiving), Asked(points)
        every = replace(self._patience, quorum=1.0)  # a caller could not tell which are missing
        missing = np.zeros(len(points), dtype=bool)
        ask = partial(self._collect, job, asked, None, every, missing)
        return follow(ask_for_rows(), ask).numpy()

    def explain(self, candidates: Candidates, problem: Problem) -> Explanation:
        """How a worker evaluates a step, and how the step divides."""
        inner = self._evaluator or own_evaluator(problem.model) or self._usual
        explain = getattr(inner, "explain", None)
        if explain is None:
            raise ConfigError(f"explain needs an evaluator with a method explain, got {inner!r}")
        found: Explanation = explain(candidates, problem)
        traffic = self.measure(ModelObjective(problem, inner), candidates)
        return found.divided(self.workers, traffic, self._patience.quorum)

    def measure(self, objective: Objective, candidates: Candidates) -> int:
        """Bytes that travel to a worker in a usual step, and back: once both have been one."""
        _, asked = make_job(objective, candidates)
        blob, _ = pack("the step", asked, TensorTable())
        offsets = candidates.offsets
        moved = candidates.subspace.dim * offsets.element_size()
        return len(blob) + offsets.numel() * offsets.element_size() + moved + 8 * len(candidates)

    # -- one question -------------------------------------------------------------------------

    def collect(self, objective: Objective, candidates: Candidates) -> Tensor:
        """The losses of all candidates."""
        divisible = share(objective)
        job, asked = make_job(objective, candidates)
        missing = np.zeros(len(candidates), dtype=bool)
        answer = partial(self._collect, job, asked, candidates.move, self._patience, missing)
        losses = follow(divisible.ask(candidates), answer)
        return _flatten(losses, missing, candidates) if missing.any() else losses

    def _collect(
        self,
        job: SearchJob | PointsJob,
        asked: Asked,
        move: Tensor | None,
        patience: Patience,
        missing: NDArray[np.bool_],
        question: Any,
    ) -> Tensor:
        """Rows of all candidates, from workers; those that a quorum does without are `missing`."""
        self.prepare()
        step, known = self._take_announced(job, asked, move) or self._begin(job, asked, move)
        sent = [None if one is None else freeze(one) for one in (asked.asked, asked.offsets)]
        step = step._replace(question=pickle.dumps(Question(sent[0], sent[1], question)))
        tasks = self._cut(len(missing), step)
        supply = partial(self._supply, known, step)
        handout = Handout(self, tasks, supply, patience, self.counts)
        try:
            rows = handout.collect()
        finally:
            missing |= handout.missing
            self._flying = len(handout.flying)
        self._cuts = {self._shape(len(missing)): handout.list_ranges()}
        return rows

    def _begin(
        self, job: SearchJob | PointsJob, asked: Asked, move: Tensor | None
    ) -> tuple[Step, dict[int, Known]]:
        """The next step, and the tensors that it refers to."""
        self._step += 1
        message, known = self._write(job, asked._replace(asked=None, offsets=None), move)
        return Step(VERSION, pickle.dumps(message)), known

    def _take_announced(
        self, job: SearchJob | PointsJob, asked: Asked, move: Tensor | None
    ) -> tuple[Step, dict[int, Known]] | None:
        """The step that workers have been told of, if it is this one."""
        told, self._announced = self._announced, None
        if told is None or isinstance(job, PointsJob) or asked.batch is None:
            return None
        fits = told.seed == asked.seed and told.move is move
        batch = told.problem.inputs, told.problem.target
        same = all(one is other for one, other in zip(asked.batch, batch, strict=True))
        return (told.step, told.known) if fits and same else None

    def _shape(self, num: int) -> tuple[int, int]:
        """Candidates, and ranges of them that are wanted; a single worker has none to wait for."""
        return num, self._tiles * self.workers if self.workers > 1 else max(1, self._tiles // 2)

    def _cut(self, num: int, step: Step) -> list[Task]:
        """The tiles of a question, in the order in which they are handed out.

        The first, one for each worker, bring the step along.
        """
        shape = self._shape(num)
        ranges = self._cuts.get(shape) or cut_evenly(*shape)
        named = Step(step.version)
        return [
            Task(Key(self._run, self._step, *one), step if place < self.workers else named)
            for place, one in enumerate(ranges)
        ]

    def _write(
        self, job: SearchJob | PointsJob, asked: Asked, move: Tensor | None
    ) -> tuple[StepMessage, dict[int, Known]]:
        """The step as a message, and the tensors that it refers to."""
        table = self._table
        table.begin()
        searched = self._number_tensors(job)
        self._parts, state = self._pack_parts(job)
        if isinstance(job, SearchJob) and isinstance(job.target.objective, ClosureObjective):
            _, reached = pack("the closure", job.target.objective.closure, table)
            check_closure(job.target.objective, reached, searched)
        blob, _ = pack("the step", asked, table)
        known = table.end()
        digests = {number: one.digest for number, one in known.items()}
        before = {n: self._sent[n] for n in searched.values() if n in self._sent}
        changed = {n for n, value in digests.items() if self._sent.get(n) != value}
        follows = move is not None and len(before) == len(searched)
        fresh = [known[n] for n in changed - (set(searched.values()) if follows else set())]
        size = sum(one.tensor.numel() * one.tensor.element_size() for one in fresh)
        self._sent = digests
        return StepMessage(
            step=self._step,
            threads=torch.get_num_threads(),
            parts=tuple(part.digest for part in self._parts),
            digests=Digests(digests, tuple(searched.items()), before if follows else {}),
            asked=blob,
            state={name: freeze(value) for name, value in state.items()},
            move=freeze(move) if follows and move is not None else None,
            values=pack_values(fresh) if fresh and size <= SENT_ALONG else b"",
        ), known

    def _pack_parts(
        self, job: SearchJob | PointsJob
    ) -> tuple[tuple["_Part", ...], dict[str, Tensor]]:
        """The parts of a job, and the state of its subspace, which is all that changes of one."""
        state = job.space.subspace.state_dict() if isinstance(job, SearchJob) else {}
        parts = []
        for number, thing in enumerate(job.parts):
            if isinstance(thing, Space) and state and len(self._parts) > number:
                before = self._parts[number]
                if isinstance(before.thing, Space) and before.thing.subspace is thing.subspace:
                    self._table.keep(before.tensors)
                    parts.append(before)
                    continue
            blob, reached = pack(f"the {type(thing).__name__.lower()}", thing, self._table)
            parts.append(_Part(thing, blob, hashlib.blake2b(blob).digest(), reached))
        return tuple(parts), state

    def _number_tensors(self, job: SearchJob | PointsJob) -> dict[str, int]:
        """The searched tensors by number; others of a model are looked at, too."""
        if isinstance(job, PointsJob):
            return {}
        objective = job.target.objective
        if isinstance(objective, ModelObjective):
            model = objective.problem.model
            for tensor in (*model.parameters(), *model.buffers()):
                self._table.number(tensor, changing=True)
        return {name: self._table.number(t, changing=True) for name, t in job.base.items()}

    def _supply(self, known: dict[int, Known], step: Step, task: Task, need: Need) -> Task:
        """The task with what a worker lacks."""
        values = pack_values(known[number] for number in need.tensors) if need.tensors else b""
        parts = tuple(part.blob for part in self._parts) if need.parts else ()
        return Task(task.key, step, parts, values)


def _flatten(losses: Tensor, missing: NDArray[np.bool_], candidates: Candidates) -> Tensor:
    """Losses, with one and the same in every cost row of which some are missing.

    Such a row has no direction, so its particle stays where it is. To rank what is missing last
    instead would push particles away from candidates of which nothing is known.
    """
    table = losses.detach().clone().reshape(candidates.offsets.shape[0], -1)
    unknown = torch.from_numpy(missing).reshape(table.shape)
    usual = losses[~torch.from_numpy(missing)].nanmean()
    table[unknown.any(dim=1)] = usual
    return table.reshape(losses.shape)


class _Part(NamedTuple):
    """A part of a job, packed."""

    thing: Any
    blob: bytes
    digest: bytes
    tensors: set[int]


class _Announced(NamedTuple):
    """A step that workers prepare for."""

    problem: Problem
    seed: int
    move: Tensor | None
    step: Step
    known: dict[int, Known]


class Spread:
    """An objective whose candidates are evaluated by workers."""

    def __init__(self, engine: Engine, objective: Objective) -> None:
        self.engine, self.objective = engine, objective

    def losses(self, candidates: Candidates) -> Tensor:
        """One loss per candidate, (N,)."""
        return self.engine.collect(self.objective, candidates)
