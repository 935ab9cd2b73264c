"""What workers are asked about: candidates of a search, or points of a function.

A job is what stays from step to step and travels once; what is asked in a step travels with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.evaluation import Candidates, ClosureObjective, ModelObjective
from hardstep.evaluation.objectives import as_number
from hardstep.evaluation.sharing import Opened, Piece, share
from hardstep.geometry import ParticleMap
from hardstep.subspaces import BoundSubspace


class Asked(NamedTuple):
    """What a step asks about."""

    batch: Any  # inputs and target of a model's problem, or points
    asked: Any = None
    offsets: Any = None
    seed: int = 0


class Space(NamedTuple):
    """Where candidates are."""

    subspace: BoundSubspace
    particles: ParticleMap
    kind: type[Candidates]

    @property
    def title(self) -> str:
        """In messages."""
        return "the subspace"


class Target(NamedTuple):
    """What they are candidates of."""

    objective: Any  # without a batch
    base: dict[str, Tensor]

    @property
    def title(self) -> str:
        """In messages."""
        return "the model" if isinstance(self.objective, ModelObjective) else "the objective"


@dataclass(frozen=True, eq=False)
class SearchJob:
    """Candidates of one model, closure, function or other objective."""

    target: Target
    space: Space

    @property
    def parts(self) -> tuple[Target, Space]:
        """What travels apart: either may change without the other."""
        return self.target, self.space

    @property
    def base(self) -> dict[str, Tensor]:
        """The searched tensors."""
        return self.target.base

    def place(self, asked: Asked) -> Any:
        """The objective with the batch that is asked about."""
        objective = self.target.objective
        if isinstance(objective, ModelObjective):
            inputs, target = asked.batch
            problem = replace(objective.problem, inputs=inputs, target=target)
            objective = replace(objective, problem=problem)
        return objective

    def prepare(self, objective: Any, asked: Asked) -> None:
        """Do what can be done before candidates are known."""
        if isinstance(objective, ModelObjective):
            none = torch.empty(0, dtype=torch.long), torch.empty(0, 1, 1, 1)
            objective.prepare(self._list(asked._replace(asked=none[0], offsets=none[1])))

    def open(self, objective: Any, asked: Asked) -> Opened:
        """What answers for any range of the candidates that are asked about."""
        return share(objective).open(self._list(asked))

    def _list(self, asked: Asked) -> Candidates:
        subspace, particles, kind = self.space
        return kind(self.base, subspace, particles, asked.asked, asked.offsets, asked.seed)

    @torch.no_grad()
    def follow(self, move: Tensor) -> None:
        """Move the base, as the driver has."""
        for name, change in self.space.subspace.expand(move).items():
            self.base[name].add_(change)

    @torch.no_grad()
    def commit(self, step: int, move: Tensor) -> None:
        """Let the subspace take note of a move; drawing bases again takes as long as a step."""
        self.space.subspace.commit(step, move)


def make_job(objective: Any, candidates: Candidates) -> tuple[SearchJob, Asked]:
    """The parts of a step that stay, and those that do not."""
    batch = None
    if isinstance(objective, ModelObjective):
        batch = objective.problem.inputs, objective.problem.target
        fixed = replace(objective.problem, inputs=None, target=None)
        objective = replace(objective, problem=fixed)
    space = Space(candidates.subspace, candidates.particles, type(candidates))
    asked = Asked(batch, candidates.asked, candidates.offsets, candidates.seed)
    return SearchJob(Target(objective, dict(candidates.base)), space), asked


def check_closure(objective: Any, reached: set[int], base: Mapping[str, int]) -> None:
    """Refuse a closure that a worker could not give the candidates' tensors to."""
    if isinstance(objective, ClosureObjective) and not reached & set(base.values()):
        name = getattr(objective.closure, "__qualname__", repr(objective.closure))
        raise ConfigError(
            f"the closure {name} travels to workers by name, without the tensors it reads, so all "
            "of its losses would be those of other tensors; make it a method of an object that "
            "holds the model, functools.partial(function, model), or a function of stacked tensors "
            "(batched=)"
        )


def join_parts(parts: tuple[Any, ...]) -> "SearchJob | PointsJob":
    """The job whose parts have arrived."""
    return parts[0] if len(parts) == 1 else SearchJob(*parts)


@dataclass(frozen=True, eq=False)
class PointsJob:
    """A function of points, one at a time.

    Args:
        function: Of a vector.
        name: Of it, in messages.
        forgiving: Whether a point at which it raises counts as NaN.
    """

    function: Callable[[NDArray[np.float64]], Any]
    name: str
    forgiving: bool
    title = "the function"  # in messages

    @property
    def parts(self) -> tuple["PointsJob"]:
        """It travels whole."""
        return (self,)

    def place(self, asked: Asked) -> "PointsJob":
        """Nothing to do."""
        del asked
        return self

    def prepare(self, objective: "PointsJob", asked: Asked) -> None:
        """Nothing to do."""

    def open(self, objective: "PointsJob", asked: Asked) -> "_OpenPoints":
        """What answers for any range of points."""
        return _OpenPoints(objective, asked.batch)


@dataclass(frozen=True, eq=False)
class _OpenPoints:
    job: PointsJob
    points: NDArray[np.float64]

    def piece(self, question: Any, start: int, stop: int) -> Piece:
        """A value per point, and whether the function raised."""
        del question
        rows = [self._call(point.copy()) for point in self.points[start:stop]]
        return Piece(start, torch.tensor(rows, dtype=torch.float64))

    def _call(self, point: NDArray[np.float64]) -> tuple[float, float]:
        try:
            value = self.job.function(point)
        except Exception:
            if not self.job.forgiving:
                raise
            return float("nan"), 1.0
        return as_number(self.job.name, value), 0.0
