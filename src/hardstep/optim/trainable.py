"""What `fit` and its callbacks need of an optimizer: PolyStep has it, and so has every rival."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from hardstep.evaluation import LossFunction
from hardstep.optim.coverage import Coverage
from hardstep.optim.report import StepReport


class Trainable(Protocol):
    """An optimizer that trains a model batch by batch, counts, reports and can be saved."""

    @property
    def model(self) -> nn.Module | None:
        """What it was built for."""
        ...

    @property
    def seed(self) -> int:
        """What fixes every random draw."""
        ...

    @property
    def evaluator(self) -> object:
        """How losses are computed; may have a `path` to show."""
        ...

    @property
    def steps(self) -> int:
        """Steps taken."""
        ...

    @property
    def evaluations(self) -> int:
        """Losses computed so far."""
        ...

    @property
    def evaluations_per_step(self) -> int:
        """What a step costs, at most."""
        ...

    @property
    def report(self) -> StepReport | None:
        """What the last step did."""
        ...

    def step(self, inputs: Any, target: Any, loss_fn: LossFunction, /) -> float:
        """Take one step on a batch and return its loss."""
        ...

    def coverage(self) -> Coverage:
        """Which hypotheses of the convergence theorem the run meets."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, next to the model's own weights."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any], /) -> None:
        """Go on from a saved state."""
        ...
