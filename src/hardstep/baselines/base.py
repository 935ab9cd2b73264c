"""The interface of a population method, and a loop that counts what it spends."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Population(Protocol):
    """Asks for the losses of a few vectors at a time."""

    @property
    def centre(self) -> Tensor:
        """(n,) where the method would stop now."""
        ...

    def ask(self) -> Tensor:
        """(N, n) vectors whose losses are wanted."""
        ...

    def tell(self, losses: Tensor) -> None:
        """Take in the losses (N,) of the vectors asked about."""
        ...


class Resumable(Population, Protocol):
    """A population method whose run can be saved, between `tell` and `ask`, and taken up again."""

    @property
    def population(self) -> int:
        """Vectors per generation."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, in tensors, numbers and strings."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a saved state of a method built alike."""
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
