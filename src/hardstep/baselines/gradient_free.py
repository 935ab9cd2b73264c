"""Baselines that see losses only: ask for moves, have them evaluated, change the tensors.

PolyStep's candidates move the coordinates of one particle. A baseline's members move all of them,
so to an evaluator they are candidates of one particle as large as the subspace. Tiles, memory,
isolation, common random numbers and the fallback to one at a time are those of
`hardstep.evaluation`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep.baselines.base import Baseline, Outcome
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import (
    Batched,
    Candidates,
    Evaluator,
    LossFunction,
    Objective,
    Span,
    make_objective,
    own_evaluator,
)
from hardstep.geometry import ParticleMap
from hardstep.optim.report import finite_losses
from hardstep.subspaces import BoundSubspace, JointSubspace, RowWise, Subspace

PARTICLE_DIM = 8  # PolyStep's default, to which row-wise subspaces round their budgets


class Members(Candidates):
    """Candidates of one particle that has every coordinate: there is nothing to look up."""

    def spans(self) -> Iterator[Span]:
        """All of them."""
        yield Span(0, 0, len(self))

    def coordinates(self, span: Span) -> tuple[Tensor, Tensor]:
        """The whole index for each."""
        offsets = self.offsets[0, span.start : span.end, 0]
        return self.particles.index.to(offsets.device).expand(len(offsets), -1), offsets


class Moves:
    """Parameter sets at a distance from the current ones, as candidates."""

    def __init__(self, subspace: BoundSubspace, members: type[Members] = Members) -> None:
        self._subspace = JointSubspace(subspace)
        self._members = members
        self._particles = ParticleMap((subspace.dim,), subspace.dim)

    def candidates(self, tensors: Mapping[str, Tensor], offsets: Tensor, seed: int) -> Candidates:
        """One parameter set per offset.

        Args:
            tensors: Current values.
            offsets: How far each set is from them, (N, dim).
            seed: Of the random numbers that all their forward passes share.
        """
        asked = torch.zeros(1, dtype=torch.long)
        stacked = offsets[None, :, None, :]
        return self._members(tensors, self._subspace, self._particles, asked, stacked, seed)


def evaluate(candidates: Candidates, objective: Objective) -> Tensor:
    """Their losses (N,) in double precision on the CPU; N evaluations."""
    found = objective.losses(candidates)
    if found.shape != (len(candidates),):
        raise ObjectiveError(
            f"objective must return {len(candidates)} losses, got {tuple(found.shape)}"
        )
    return found.detach().double().cpu()


class Searcher(Baseline):
    """A gradient-free baseline.

    Losses that are NaN or infinite count as the worst finite one of the step, as PolyStep's do
    by default. The loss of a step is the mean of its losses, unless a method says otherwise.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        subspace: Which coordinates are searched; `RowWise()`, as in PolyStep, if left out. With
            the same seed they are those of a PolyStep whose particles have 8 dimensions.
        evaluator: How losses of a model are computed; the one it brings along, or
            a new `USUAL` one, if left out.
        seed: Fixes every random draw.
    """

    USUAL: ClassVar[type[Evaluator]] = Batched
    MEMBERS: ClassVar[type[Members]] = Members

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        subspace: Subspace | None,
        evaluator: Evaluator | None,
        seed: int,
    ) -> None:
        super().__init__(model, seed)
        self.subspace: Subspace = subspace if subspace is not None else RowWise()
        if isinstance(subspace, type) or not callable(getattr(self.subspace, "bind", None)):
            raise ConfigError(
                f"{self._name}: subspace must be an object such as RowWise(rank=8), got "
                f"{subspace!r}"
            )
        usual = own_evaluator(model) or self.USUAL()
        self.evaluator: Evaluator = usual if evaluator is None else evaluator
        if isinstance(evaluator, type) or not callable(getattr(self.evaluator, "losses", None)):
            raise ConfigError(
                f"{self._name}: evaluator must be an object such as Batched(), got {evaluator!r}"
            )
        self.space = self.subspace.bind(self.layout, PARTICLE_DIM, self.seed)
        self._moves = Moves(self.space, self.MEMBERS)

    def step(
        self,
        inputs: Any = None,
        target: Any = None,
        loss_fn: LossFunction | None = None,
        *,
        batched: Callable[[dict[str, Tensor]], Any] | None = None,
        objective: Objective | None = None,
    ) -> float:
        """Take one step and return its loss; arguments as for `PolyStep.step`."""
        asked = make_objective(
            self.model, self.evaluator, inputs, target, loss_fn, batched, objective
        )
        return self._take(partial(self._advance, asked))

    def _advance(self, objective: Objective) -> Outcome:
        offsets = self._ask()
        seed = seeds.derive(self.seed, "forward", self.steps)
        found = evaluate(self._moves.candidates(self.tensors, offsets, seed), objective)
        losses, nonfinite = finite_losses(found, "worst")
        changes = self._tell(offsets, losses)
        for name, change in changes.items():
            self.tensors[name].add_(change)
        return Outcome(
            loss=math.nan if nonfinite == len(found) else self._loss(losses),
            changes=changes,
            evaluations=len(found),
            nonfinite=nonfinite,
            radius=self._radius(offsets),
            dead=float(losses.min() == losses.max()),
        )

    @abstractmethod
    def _ask(self) -> Tensor:
        """The moves whose losses are wanted, (N, dim)."""

    @abstractmethod
    def _tell(self, offsets: Tensor, losses: Tensor) -> dict[str, Tensor]:
        """The changes of the tensors that follow from the losses (N,), all of them finite."""

    def _loss(self, losses: Tensor) -> float:
        """What a step reports."""
        return float(losses.mean())

    def _radius(self, offsets: Tensor) -> float:
        """The length of the longest move, all coordinates together."""
        return float(offsets.norm(dim=1).max())

    def _like(self, values: Tensor) -> Tensor:
        """Values drawn on the CPU, where and in what precision coordinates are kept."""
        return values.to(device=self.layout.device, dtype=self.layout.dtype)

    def _memory(self) -> dict[str, Any]:
        return {"subspace": self.space.state_dict()}

    def _recall(self, memory: Mapping[str, Any]) -> None:
        self.space.load_state_dict(memory["subspace"])


class SubspaceSearcher(Searcher):
    """A gradient-free baseline that takes its steps within the subspace."""

    def _tell(self, offsets: Tensor, losses: Tensor) -> dict[str, Tensor]:
        move = self._like(self._move(offsets, losses))
        changes = self.space.expand(move)
        if self.space.commit(self.steps, move):
            self._forget()
        return changes

    @abstractmethod
    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        """The move (dim,) to take."""

    def _forget(self) -> None:
        """The meaning of the coordinates has changed; nothing is remembered of them here."""
