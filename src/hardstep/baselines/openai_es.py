"""OpenAI-ES (Salimans et al. 2017): a Gaussian around a centre that follows ranked losses.

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
from hardstep.baselines.checks import check_pairs, check_rate, rate_at
from hardstep.schedules import Schedule


class OpenAiEs:
    """One run.

    Args:
        start: (n,) the first centre.
        sigma: Standard deviation of the population.
        learning_rate: Of Adam, a number or a schedule over generations.
        population: Vectors per generation, an even number.
        seed: Fixes every draw.
        decay: How much of the centre is taken away per generation.
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
        self._centre = start.detach().clone().requires_grad_()
        self.sigma, self.population, self.seed, self.decay = sigma, population, seed, decay
        self.learning_rate = learning_rate
        self._adam = torch.optim.Adam([self._centre])
        self._generation = 0
        self._noise = torch.empty(0)

    @property
    def centre(self) -> Tensor:
        """The mean of the population."""
        return self._centre.detach()

    def ask(self) -> Tensor:
        """Pairs on opposite sides of the centre."""
        generator = seeds.generator(self.seed, "openai-es", self._generation)
        half = torch.randn(
            self.population // 2, len(self.centre), generator=generator, dtype=self.centre.dtype
        )
        self._noise = torch.cat([half, -half])
        return self.centre + self.sigma * self._noise

    def tell(self, losses: Tensor) -> None:
        """One step of Adam along the ranked noise."""
        self._centre.grad = centred_ranks(losses).to(self._noise) @ self._noise
        self._centre.grad /= self.population * self.sigma
        for group in self._adam.param_groups:
            group["lr"] = rate_at("OpenAiEs", self.learning_rate, self._generation)
        self._adam.step()
        with torch.no_grad():
            self._centre.mul_(1 - self.decay)
        self._generation += 1

    def state_dict(self) -> dict[str, Any]:
        """The centre, Adam's moments and the number of generations."""
        return {
            "centre": self.centre.clone(),
            "adam": deepcopy(self._adam.state_dict()),
            "generation": self._generation,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._centre.data.copy_(saved["centre"])
        self._adam.load_state_dict(deepcopy(saved["adam"]))
        self._generation = int(saved["generation"])


def centred_ranks(losses: Tensor) -> Tensor:
    """From −1/2 for the least to 1/2 for the largest; equal losses share the mean of theirs."""
    _, place, counts = torch.unique(losses, return_inverse=True, return_counts=True)
    after = counts.cumsum(0).double()
    mean_rank = after - (counts + 1) / 2
    ranks: Tensor = mean_rank[place] / (len(losses) - 1) - 0.5
    return ranks
