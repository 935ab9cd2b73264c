"""OpenAI-ES (Salimans et al. 2017): a Gaussian around a center that follows ranked losses.

    θ ± σε in pairs,  g = (1 / Nσ) Σ rank_i ε_i,  θ ← Adam(θ, g)

Ranks are spread evenly over [−1/2, 1/2], so only the order of the losses counts.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._checks import check_not_negative, check_positive
from hardstep.baselines.base import check_pairs, check_rate, rate_at
from hardstep.schedules import Schedule


class OpenAiEs:
    """One run.

    Args:
        start: (n,) the first center.
        sigma: Standard deviation of the population.
        learning_rate: Of Adam, a number or a schedule over generations.
        population: Vectors per generation, an even number.
        seed: Fixes every draw.
        decay: How much of the center is taken away per generation.
    """

    def __init__(
        self,
        start: Tensor,
        sigma: float = 0.1,
        learning_rate: Schedule = 0.05,
        population: int = 32,
        seed: int = 0,
        decay: float = 0.0,
    ) -> None:
        check_positive("OpenAiEs: sigma", sigma)
        check_rate("OpenAiEs", learning_rate)
        check_pairs("OpenAiEs", population)
        check_not_negative("OpenAiEs: decay", decay)
        self._center = start.detach().clone().requires_grad_()
        self.sigma, self.population, self.seed, self.decay = sigma, population, seed, decay
        self.learning_rate = learning_rate
        self._adam = torch.optim.Adam([self._center])
        self._generation = 0
        self._noise = torch.empty(0)

    @property
    def center(self) -> Tensor:
        """The mean of the population."""
        return self._center.detach()

    def ask(self) -> Tensor:
        """Pairs on opposite sides of the center."""
        generator = seeds.generator(self.seed, "openai-es", self._generation)
        half = torch.randn(
            self.population // 2, len(self.center), generator=generator, dtype=self.center.dtype
        )
        self._noise = torch.cat([half, -half])
        return self.center + self.sigma * self._noise

    def tell(self, losses: Tensor) -> None:
        """One step of Adam along the ranked noise."""
        self._center.grad = center_ranks(losses).to(self._noise) @ self._noise
        self._center.grad /= self.population * self.sigma
        for group in self._adam.param_groups:
            group["lr"] = rate_at("OpenAiEs", self.learning_rate, self._generation)
        self._adam.step()
        with torch.no_grad():
            self._center.mul_(1 - self.decay)
        self._generation += 1

    def state_dict(self) -> dict[str, Any]:
        """The center, Adam's moments and the number of generations."""
        return {
            "center": self.center.clone(),
            "adam": deepcopy(self._adam.state_dict()),
            "generation": self._generation,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from there."""
        self._center.data.copy_(saved["center"])
        self._adam.load_state_dict(deepcopy(saved["adam"]))
        self._generation = int(saved["generation"])


def center_ranks(losses: Tensor) -> Tensor:
    """From −1/2 for the least to 1/2 for the largest; equal losses share the mean of theirs."""
    _, place, counts = torch.unique(losses, return_inverse=True, return_counts=True)
    after = counts.cumsum(0).double()
    mean_rank = after - (counts + 1) / 2
    ranks: Tensor = mean_rank[place] / (len(losses) - 1) - 0.5
    return ranks
