"""A population method on the coordinates of a subspace.

    θ + Π(x_i − m) evaluated for the vectors x_i that a method with mean m asks about
    θ ← θ + Π(m' − m) when the method's mean has become m'

So the weights are the method's mean throughout, and a change made to them in between is kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep.baselines.base import Resumable
from hardstep.baselines.searching import Walker
from hardstep.errors import ConfigError
from hardstep.evaluation import Evaluator
from hardstep.subspaces import Subspace


class InSubspace(Walker):
    """OpenAI-ES, CMA-ES or any other method that asks and tells, for a network.

        InSubspace(model, partial(OpenAiEs, sigma=0.02), subspace=RowWise(rank=4), seed=0)

    One generation is one step. Where the subspace is redrawn, coordinates lose their meaning and
    the method starts anew, with its first step size and none of what it had learnt: prefer one
    that is not. A method's weight decay pulls toward the weights it started from.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        method: Called as `method(start, seed=…)` with a vector of zeros.
        subspace: Which coordinates are searched; `RowWise()` if left out.
        evaluator: How losses of a model are computed; `Batched()` if left out.
        seed: Fixes every random draw.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("method", "subspace")

    def __init__(
        self,
        model: nn.Module | Mapping[str, Tensor],
        method: Callable[..., Resumable],
        *,
        subspace: Subspace | None = None,
        evaluator: Evaluator | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(method):
            raise ConfigError(
                f"{self._name}: method must be a class such as OpenAiEs, or a partial of one, got "
                f"{method!r}"
            )
        super().__init__(model, subspace, evaluator, seed)
        self.method = method
        self._starts = 0
        self.population = self._fresh()

    def _fresh(self) -> Resumable:
        start = torch.zeros(self.space.dim, dtype=self.layout.dtype)
        seed = seeds.derive(self.seed, "population", self._starts)
        return self.method(start, seed=seed)

    @property
    def evaluations_per_step(self) -> int:
        """One per member."""
        return self.population.population

    def _ask(self) -> Tensor:
        return self._like(self.population.ask() - self.population.centre)

    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        before = self.population.centre.clone()
        self.population.tell(losses)
        return self.population.centre - before

    def _forget(self) -> None:
        self._starts += 1
        self.population = self._fresh()

    def _memory(self) -> dict[str, Any]:
        own = {"starts": self._starts, "population": self.population.state_dict()}
        return super()._memory() | own

    def _recall(self, memory: Mapping[str, Any]) -> None:
        super()._recall(memory)
        self._starts = int(memory["starts"])
        self.population = self._fresh()
        self.population.load_state_dict(memory["population"])
