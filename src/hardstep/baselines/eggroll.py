"""EGGROLL, an evolution strategy with low-rank members (Sarkar et al. 2025).

    E_i = A_i B_iᵀ / √r,  A_i (d_out, r) and B_i (d_in, r) standard normal, per matrix
    e_i standard normal, per vector
    W ← W − α · (1/N) Σ f_i E_i,  f_i the shaped loss at W + σE_i

A member has rank r, the average has not. Members come in pairs ±E; tensors of more dimensions
are read as matrices (shape[0], the rest). The 1/σ of the gradient estimate is part of α, as in
the paper; the authors' program also multiplies by σ√N, so α is its learning rate times σ√N.
"""

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_count, check_positive
from hardstep.baselines.base import check_pairs, check_rate, rate_at
from hardstep.baselines.gradient_free import Searcher
from hardstep.baselines.low_rank import BoundFactored, Factored, FactoredMembers
from hardstep.errors import ConfigError
from hardstep.evaluation import Evaluator
from hardstep.schedules import Schedule

Shaping = Callable[[Tensor], Tensor]


def standardize(losses: Tensor) -> Tensor:
    """Losses (N,) with mean 0 and variance 1, as published; equal ones become 0."""
    variance, mean = torch.var_mean(losses, correction=0)
    return (losses - mean) / torch.sqrt(variance + 1e-5)


class Eggroll(Searcher):
    """Low-rank members, full-rank steps, in a factored subspace (`low_rank`).

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        sigma: σ, standard deviation of an entry of a member.
        learning_rate: α, a number or a schedule.
        rank: r; a matrix with fewer rows or columns takes as many.
        population: N, an even number.
        shaping: From losses (N,) to f (N,); `standardize`, or `center_ranks` as in OpenAI-ES.
        evaluator: How losses of a model are computed; `Batched()` if left out.
        seed: Fixes every random draw.
    """

    MEMBERS = FactoredMembers
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "sigma",
        "learning_rate",
        "rank",
        "population",
        "shaping",
    )

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        *,
        sigma: float = 0.02,
        learning_rate: Schedule = 0.1,
        rank: int = 1,
        population: int = 32,
        shaping: Shaping = standardize,
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> None:
        check_positive(f"{self._name}: sigma", sigma)
        check_rate(self._name, learning_rate)
        check_count(f"{self._name}: rank", rank)
        check_pairs(self._name, population)
        if not callable(shaping):
            raise ConfigError(
                f"{self._name}: shaping must be a function such as standardize, got {shaping!r}"
            )
        super().__init__(model, Factored(rank), evaluator, seed)
        self.sigma, self.learning_rate, self.rank = sigma, learning_rate, rank
        self.population, self.shaping = population, shaping

    @property
    def evaluations_per_step(self) -> int:
        """One per member."""
        return self.population

    @property
    def _factors(self) -> BoundFactored:
        assert isinstance(self.space, BoundFactored)
        return self.space

    def _ask(self) -> Tensor:
        generator = seeds.generator(self.seed, "eggroll", self.steps)
        noise = torch.randn(self.population // 2, self.space.dim, generator=generator)
        half = self._like(noise * self._factors.scales(self.sigma))
        return torch.cat([half, self._factors.mirror(half)])

    def _tell(self, offsets: Tensor, losses: Tensor) -> dict[str, Tensor]:
        shaped = self.shaping(losses)
        if shaped.shape != losses.shape:
            raise ConfigError(
                f"{self._name}: shaping must return {len(losses)} numbers, got shape "
                f"{tuple(shaped.shape)}"
            )
        rate = rate_at(self._name, self.learning_rate, self.steps)
        # The offsets are σE, hence another 1/σ.
        weights = -rate / (self.population * self.sigma) * shaped
        return self._factors.combine(self._like(weights), offsets)

    def _radius(self, offsets: Tensor) -> float:
        """The length of a typical member; A and B taken apart have none."""
        return self.sigma * math.sqrt(self.layout.num_parameters)
