"""Random search (Rastrigin 1963; Matyas 1965) within a subspace.

    z_i = σ ε_i,  ε_i ~ N(0, I),  i = 1…N
    θ ← θ + Π z_j  with the least loss, if that is below the loss at θ

Both losses are on the same batch, so a step costs N + 1 evaluations. It has PolyStep's subspace
and nothing else of it: what it reaches is the subspace's share.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_count, check_positive
from hardstep.baselines.gradient_free import SubspaceSearcher
from hardstep.evaluation import Evaluator
from hardstep.subspaces import Subspace


class RandomSearch(SubspaceSearcher):
    """Best of N random moves, kept if better. The loss of a step is that of what it kept.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        sigma: Standard deviation of a move, per coordinate.
        population: N, moves tried per step.
        subspace: Which coordinates are searched; `RowWise()` if left out.
        evaluator: How losses of a model are computed; `Batched()` if left out.
        seed: Fixes every random draw.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("sigma", "population", "subspace")

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        *,
        sigma: float = 0.05,
        population: int = 31,
        subspace: Subspace | None = None,
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> None:
        check_positive(f"{self._name}: sigma", sigma)
        check_count(f"{self._name}: population", population)
        super().__init__(model, subspace, evaluator, seed)
        self.sigma, self.population = sigma, population

    @property
    def evaluations_per_step(self) -> int:
        """The moves, and standing still."""
        return self.population + 1

    def _ask(self) -> Tensor:
        generator = seeds.generator(self.seed, "random search", self.steps)
        noise = torch.randn(self.population, self.space.dim, generator=generator)
        still = torch.zeros(1, self.space.dim)
        return self._like(torch.cat([still, self.sigma * noise]))

    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        best = int(losses.argmin())
        return offsets[best if losses[best] < losses[0] else 0]

    def _loss(self, losses: Tensor) -> float:
        return float(losses.min())
