"""The driver: turns a step into messages, and what workers answer into losses.

An engine stands where an evaluator does: `PolyStep(model, evaluator=Futures(executor))`. Closures,
functions and other objectives of `step` go the same way, and so do points of `minimize`.
"""

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
from hardstep.distributed.cuts import Cuts
from hardstep.distributed.handout import Handout
from hardstep.distributed.jobs import Asked, PointsJob, SearchJob, make_job
from hardstep.distributed.messages import VERSION, Ahead, Key, Question, Step, Task
from hardstep.distributed.patience import Patience
from hardstep.distributed.steps import StepWriter, Written
from hardstep.distributed.tensors import TensorTable, freeze, pack
from hardstep.errors import ConfigError
from hardstep.evaluation import (
    Candidates,
    Evaluator,
    Explanation,
    Incremental,
    ModelObjective,
    Objective,
    Problem,
    own_evaluator,
)
from hardstep.evaluation.sharing import ask_for_rows, follow, share

TILES = 8  # per worker and step: few enough to cost little, enough to even out


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
        self._run = uuid.uuid4().hex
        self._step = 0
        self._flying = 0
        self._writer, self._cuts = StepWriter(), Cuts(tiles)
        self._announced: _Announced | None = None
        self._meanwhile: Callable[[], None] | None = None
        self._told: tuple[Tensor, int] | None = None  # the last move, and the step that made it
        self._answered = 0  # the last step, if it was announced and all of it was answered

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
        move, blob = candidates.move, self._writer.begin(asked)
        follows = move is not None and self._answered == self._step
        self._step += 1
        if follows:  # and what else is in the step is looked at while workers prepare for it
            self._tell(Step(VERSION), move, blob)
        written = self._writer.finish(self._step, job, blob, move)
        self._announced = _Announced(problem, candidates.seed, move, written)
        if not follows:
            self._tell(written.step)

    def tell_move(self, move: Tensor, step: int) -> None:
        """Let workers make an optimizer's move of a step, in coordinates, while it is made here."""
        self._told = move, step
        if self._answered == self._step:
            self._tell(Step(VERSION), move)

    def while_waiting(self, work: Callable[[], None]) -> None:
        """Let something be done here in the next step, when workers begin to have nothing to do."""
        self._meanwhile = work

    def _tell(self, step: Step, move: Tensor | None = None, asked: bytes = b"") -> None:
        """Send something to every worker that will have a tile; none need hear of it."""
        ahead = None
        if move is not None:
            step_of = self._told[1] if self._told and self._told[0] is move else None
            ahead = Ahead(self._answered, step_of, freeze(move), asked, torch.get_num_threads())
        for _ in range(min(self.workers, self._cuts.most or self.workers)):
            task = Task(Key(self._run, self._step, 0, 0), step, ahead=ahead)
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
        announced = self._take_announced(job, asked, move)
        written = announced or self._begin(job, asked, move)
        sent = [None if one is None else freeze(one) for one in (asked.asked, asked.offsets)]
        asking = pickle.dumps(Question(sent[0], sent[1], question))
        step, num, workers = written.step._replace(question=asking), len(missing), self.workers
        tasks, supply = self._list_tasks(num, step), partial(written.supply, step)
        work, self._meanwhile = self._meanwhile, None
        handout = Handout(self, tasks, supply, patience, self.counts, work)
        try:
            rows = handout.collect()
        finally:
            missing |= handout.missing
            self._flying = len(handout.flying)
        self._cuts.note(num, workers, handout.list_ranges())
        self._answered = self._step if announced else 0
        return rows

    def _begin(self, job: SearchJob | PointsJob, asked: Asked, move: Tensor | None) -> Written:
        """The next step."""
        self._step += 1
        return self._writer.finish(self._step, job, self._writer.begin(asked), move)

    def _take_announced(
        self, job: SearchJob | PointsJob, asked: Asked, move: Tensor | None
    ) -> Written | None:
        """The step that workers have been told of, if it is this one."""
        told, self._announced = self._announced, None
        if told is None or isinstance(job, PointsJob) or asked.batch is None:
            return None
        fits = told.seed == asked.seed and told.move is move
        batch = told.problem.inputs, told.problem.target
        same = all(one is other for one, other in zip(asked.batch, batch, strict=True))
        return told.written if fits and same else None

    def _list_tasks(self, num: int, step: Step) -> list[Task]:
        """The ranges of a question as tasks; the first, one for each worker, bring the step."""
        named = Step(step.version)
        return [
            Task(Key(self._run, self._step, *one), step if place < self.workers else named)
            for place, one in enumerate(self._cuts.plan(num, self.workers))
        ]


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


class _Announced(NamedTuple):
    """A step that workers prepare for."""

    problem: Problem
    seed: int
    move: Tensor | None
    written: Written


class Spread:
    """An objective whose candidates are evaluated by workers."""

    def __init__(self, engine: Engine, objective: Objective) -> None:
        self.engine, self.objective = engine, objective

    def losses(self, candidates: Candidates) -> Tensor:
        """One loss per candidate, (N,)."""
        return self.engine.collect(self.objective, candidates)
