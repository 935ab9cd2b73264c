"""Population methods: their interface, a loop for functions of vectors, one for networks.

In a subspace Π, for a method with mean m:

    θ + Π(x_i − m) is evaluated for the vectors x_i that the method asks about
    θ ← θ + Π(m' − m) when the method's mean has become m'

So the weights are the method's mean throughout, and a change made to them in between is kept.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep.baselines.gradient_free import SubspaceSearcher
from hardstep.errors import ConfigError
from hardstep.evaluation import Evaluator
from hardstep.subspaces import Subspace


class Population(Protocol):
    """Asks for the losses of a few vectors at a time."""

    @property
    def center(self) -> Tensor:
        """(n,) where the method would stop now."""
        ...

    def ask(self) -> Tensor:
        """(N, n) vectors whose losses are wanted."""
        ...

    def tell(self, losses: Tensor) -> None:
        """Take in the losses (N,) of the vectors asked about."""
        ...


class Resumable(Population, Protocol):
    """A population method whose run can be saved, between `tell` and `ask`, and continued."""

    @property
    def population(self) -> int:
        """Vectors per generation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit, in tensors, numbers and strings."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state of a method built alike."""
        ...


class Best(NamedTuple):
    """The best vector evaluated, its loss, and how many losses that took."""

    vector: Tensor
    loss: float
    evaluations: int


def minimize(method: Population, losses_of: Callable[[Tensor], Tensor], evaluations: int) -> Best:
    """Run a method until another generation would exceed the evaluations.

    Args:
        method: The method.
        losses_of: Losses (N,) of vectors (N, n).
        evaluations: At most; at least one generation is run.
    """
    best, spent = None, 0
    while True:
        vectors = method.ask()
        losses = losses_of(vectors)
        spent += len(vectors)
        place = int(losses.argmin())
        if best is None or float(losses[place]) < best.loss:
            best = Best(vectors[place].clone(), float(losses[place]), spent)
        method.tell(losses)
        if spent + len(vectors) > evaluations:
            return best._replace(evaluations=spent)


class InSubspace(SubspaceSearcher):
    """OpenAI-ES, CMA-ES or any other method that asks and tells, for a network.

        InSubspace(model, partial(OpenAiEs, sigma=0.02), subspace=RowWise(rank=4), seed=0)

    One generation is one step. Where the subspace is redrawn, coordinates lose their meaning and
    the method restarts, with its first step size and none of what it had learned: prefer a
    subspace that is not. A method's weight decay pulls toward the weights it started from.

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
        self.population = self._start()

    def _start(self) -> Resumable:
        start = torch.zeros(self.space.dim, dtype=self.layout.dtype)
        seed = seeds.derive(self.seed, "population", self._starts)
        return self.method(start, seed=seed)

    @property
    def evaluations_per_step(self) -> int:
        """One per member."""
        return self.population.population

    def _ask(self) -> Tensor:
        return self._like(self.population.ask() - self.population.center)

    def _move(self, offsets: Tensor, losses: Tensor) -> Tensor:
        before = self.population.center.clone()
        self.population.tell(losses)
        return self.population.center - before

    def _forget(self) -> None:
        self._starts += 1
        self.population = self._start()

    def _memory(self) -> dict[str, Any]:
        own = {"starts": self._starts, "population": self.population.state_dict()}
        return super()._memory() | own

    def _recall(self, memory: Mapping[str, Any]) -> None:
        super()._recall(memory)
        self._starts = int(memory["starts"])
        self.population = self._start()
        self.population.load_state_dict(memory["population"])
