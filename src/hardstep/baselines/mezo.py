"""MeZO, zeroth-order SGD with regenerated directions (Malladi et al. 2023).

    z ~ N(0, I),   g = (L(θ + μz) − L(θ − μz)) / 2μ,   θ ← θ − η g z

With `subspace=Full()` this is the published method, elsewhere the same formula on the searched
coordinates. The direction comes from (seed, step) alone, as published; writing it into the
weights and out again, which saves memory on large models and changes no number, is not done.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_positive
from hardstep.baselines.base import check_rate, rate_at
from hardstep.baselines.gradient_free import SubspaceSearcher
from hardstep.evaluation import Evaluator, OneByOne
from hardstep.schedules import Schedule
from hardstep.subspaces import Subspace


class MeZo(SubspaceSearcher):
    """Two losses per step, on opposite sides of the weights.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        learning_rate: η, a number or a schedule; the more coordinates, the smaller it must be.
        mu: Half the distance between the two, per coordinate.
        subspace: Which coordinates are searched; `RowWise()` if left out.
        evaluator: How losses of a model are computed; `OneByOne()` if left out.
        seed: Fixes every random draw.
    """

    USUAL: ClassVar[type[Evaluator]] = OneByOne  # to batch two takes longer than to run them
    SETTINGS: ClassVar[tuple[str, ...]] = ("learning_rate", "mu", "subspace")

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        *,
        learning_rate: Schedule = 1e-2,
        mu: float = 1e-3,
        subspace: Subspace | None = None,
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> None:
        check_rate(self._name, learning_rate)
        check_positive(f"{self._name}: mu", mu)
        super().__init__(model, subspace, evaluator, seed)
        self.learning_rate, self.mu = learning_rate, mu

    @property
    def evaluations_per_step(self) -> int:
        """The two sides."""
        return 2

    def direction(self, step: int) -> Tensor:
        """The direction z of a step, (dim,)."""
        generator = seeds.generator(self.seed, "mezo", step)
        return self._like(torch.randn(self.space.dim, generator=generator))

    def _ask(self) -> Tensor:
        offset = self.mu * self.direction(self.steps)
        return torch.stack([offset, -offset])

    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        slope = float(losses[0] - losses[1]) / (2 * self.mu)
        rate = rate_at(self._name, self.learning_rate, self.steps)
        return -rate * slope * (offsets[0] / self.mu)
