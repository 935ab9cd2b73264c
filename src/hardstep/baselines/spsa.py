"""SPSA, simultaneous perturbation stochastic approximation (Spall 1992).

    Δ_k ~ ±1 per coordinate
    ĝ_k = (L(z + c_k Δ_k) − L(z − c_k Δ_k)) / (2 c_k Δ_k)
    z ← z − a_k ĝ_k,   a_k = a / (A + k)^α,   c_k = c / k^γ,   k = 1, 2, …

The gains and their exponents are those of Spall's implementation guide (1998).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_not_negative, check_positive
from hardstep.baselines.gradient_free import SubspaceSearcher
from hardstep.evaluation import Evaluator, OneByOne
from hardstep.subspaces import Subspace


class Spsa(SubspaceSearcher):
    """Two losses per step, on opposite corners of a cube around the weights.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        a: Of the step sizes; the one to tune first.
        c: Of the distances at which losses are taken; the noise of the loss, or more.
        stability: A, about a tenth of the steps to be taken.
        alpha: How fast steps shrink.
        gamma: How fast distances shrink.
        subspace: Which coordinates are searched; `RowWise()` if left out.
        evaluator: How losses of a model are computed; `OneByOne()` if left out.
        seed: Fixes every random draw.
    """

    USUAL: ClassVar[type[Evaluator]] = OneByOne  # to batch two takes longer than to run them
    SETTINGS: ClassVar[tuple[str, ...]] = ("a", "c", "stability", "alpha", "gamma", "subspace")

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        *,
        a: float = 0.5,
        c: float = 0.1,
        stability: float = 100.0,
        alpha: float = 0.602,
        gamma: float = 0.101,
        subspace: Subspace | None = None,
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> None:
        check_positive(f"{self._name}: a", a)
        check_positive(f"{self._name}: c", c)
        check_not_negative(f"{self._name}: stability", stability)
        check_not_negative(f"{self._name}: alpha", alpha)
        check_not_negative(f"{self._name}: gamma", gamma)
        super().__init__(model, subspace, evaluator, seed)
        self.a, self.c, self.stability = a, c, stability
        self.alpha, self.gamma = alpha, gamma

    @property
    def evaluations_per_step(self) -> int:
        """The two corners."""
        return 2

    def gains(self, step: int) -> tuple[float, float]:
        """(a_k, c_k) at a step, counted from 0."""
        k = step + 1
        return self.a / (self.stability + k) ** self.alpha, self.c / k**self.gamma

    def _ask(self) -> Tensor:
        generator = seeds.generator(self.seed, "spsa", self.steps)
        coins = torch.randint(0, 2, (self.space.dim,), generator=generator)
        corner = self._like(2 * coins - 1) * self.gains(self.steps)[1]
        return torch.stack([corner, -corner])

    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        rate, distance = self.gains(self.steps)
        slope = float(losses[0] - losses[1]) / (2 * distance)
        signs = offsets[0].sign()  # each is its own inverse
        return -rate * slope * signs
