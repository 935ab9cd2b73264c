"""What all baselines share: the interface of `fit`, counters, reports, saving, checks."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from hardstep import seeds
from hardstep._checks import check_count, check_positive, is_count, is_same, show
from hardstep.errors import CheckpointError, ConfigError
from hardstep.evaluation import LossFunction
from hardstep.evaluation.sandbox import claim
from hardstep.optim import Coverage, StepReport
from hardstep.optim.settings import describe
from hardstep.schedules import Schedule, value_at
from hardstep.subspaces import Layout, trainable

FORMAT = 1


class Outcome(NamedTuple):
    """What a step found out and what it did."""

    loss: float
    changes: Mapping[str, Tensor]  # of the searched tensors, already carried out
    evaluations: int
    nonfinite: int = 0
    radius: float = math.nan  # how far it looked
    dead: float = math.nan  # 1 if every loss was the same


class Baseline(ABC):
    """An optimizer that takes PolyStep's place in `fit`.

    Args:
        model: A module, whose trainable parameters are searched, or named tensors.
        seed: Fixes every random draw.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ()  # attributes a saved state must agree with
    evaluator: object = None

    def __init__(self, model: nn.Module | Mapping[str, Tensor], seed: int) -> None:
        if not isinstance(model, nn.Module | Mapping):
            raise ConfigError(
                f"{self._name}: model must be a module or a dict of named tensors, got a "
                f"{type(model).__name__}"
            )
        self.model = model if isinstance(model, nn.Module) else None
        self.seed = seeds.check_seed(seed)
        with claim(self.model):
            self.tensors = trainable(model)
        self.layout = Layout(self.tensors)
        self.steps = 0
        self.evaluations = 0
        self.report: StepReport | None = None

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    @abstractmethod
    def evaluations_per_step(self) -> int:
        """What a step costs."""

    def coverage(self) -> Coverage:
        """Refused: the convergence theorem is about PolyStep."""
        raise ConfigError(
            f"{self._name}: the convergence theorem is PolyStep's and says nothing about it; "
            "leave CoverageLog out"
        )

    # -- one step ---------------------------------------------------------------------------

    @abstractmethod
    def step(self, inputs: Any, target: Any, loss_fn: LossFunction) -> float:
        """Take one step on a batch and return its loss; `report` has the details."""

    def _take(self, advance: Callable[[], Outcome]) -> float:
        """One step, done by `advance`, counted and reported."""
        started = time.perf_counter()
        with claim(self.model), torch.no_grad():
            self._check_tensors()
            outcome = advance()
        lengths = [float(vector_norm(c, dtype=torch.float64)) for c in outcome.changes.values()]
        self.evaluations += outcome.evaluations
        self.report = StepReport(
            step=self.steps,
            loss=outcome.loss,
            solved=True,
            temperature=math.nan,
            step_radius=math.nan,
            probe_radius=outcome.radius,
            spread_max=math.nan,
            spread_share=math.nan,
            spread_square=math.nan,
            dead_share=outcome.dead,
            displacement=math.hypot(*lengths),
            nonfinite=outcome.nonfinite,
            evaluations=outcome.evaluations,
            seconds=time.perf_counter() - started,
        )
        self.steps += 1
        return outcome.loss

    def _check_tensors(self) -> None:
        """Refuse to continue with tensors that are no longer the model's."""
        if self.model is None:
            return
        now = trainable(self.model)
        odd = {n for n in now.keys() | self.tensors if now.get(n) is not self.tensors.get(n)}
        if odd:
            raise ConfigError(
                f"{self._name}: the model's parameter {min(odd)!r} was replaced since the "
                "optimizer was built; build a new one"
            )

    # -- saving -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit, next to the model's own weights."""
        return {
            "format": FORMAT,
            "settings": self._describe(),
            "seed": self.seed,
            "step": self.steps,
            "evaluations": self.evaluations,
            "memory": self._memory(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state; method, settings, seed and shapes must be the same."""
        here = {"format": FORMAT, "settings": self._describe(), "seed": self.seed}
        for name, value in here.items():
            seen = saved.get(name)
            if not is_same(seen, value):
                shown = repr(seen) if isinstance(seen, str) else show(seen)
                raise CheckpointError(
                    f"{self._name}: the state was saved with {name} {shown}, this "
                    f"optimizer has {value!r}; build it as the saved one was"
                )
        for name in ("step", "evaluations"):
            if not is_count(saved.get(name)):
                raise CheckpointError(
                    f"{self._name}: {name} of the state must be a whole number >= 0, got "
                    f"{show(saved.get(name))}; load what state_dict() gave"
                )
        try:
            self._recall(saved["memory"])
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self._name}: the memory in the state is not one of this optimizer "
                f"({type(error).__name__}: {show(str(error))}); load what state_dict() gave"
            ) from error
        self.steps, self.evaluations = saved["step"], saved["evaluations"]
        self.report = None

    def _describe(self) -> str:
        settings = {name: getattr(self, name) for name in self.SETTINGS}
        shapes = {spec.name: spec.shape for spec in self.layout}
        return f"{self._name}{describe(settings)} for {describe(shapes)}"

    @abstractmethod
    def _memory(self) -> dict[str, Any]:
        """What is remembered from step to step, as tensors, numbers and strings."""

    @abstractmethod
    def _recall(self, memory: Mapping[str, Any]) -> None:
        """Take a memory up again."""


def check_rate(owner: str, rate: object) -> None:
    """Refuse a learning rate that is no number > 0; a schedule is checked when it is used."""
    if not callable(rate):
        check_positive(f"{owner}: learning_rate", rate)


def check_pairs(owner: str, population: object) -> None:
    """Refuse a population that is not made of pairs."""
    check_count(f"{owner}: population", population, 2)
    assert isinstance(population, int)
    if population % 2:
        raise ConfigError(
            f"{owner}: population must be even, since its members come in pairs, got "
            f"{population}; use {population + 1}"
        )


def rate_at(owner: str, rate: Schedule, step: int) -> float:
    """The learning rate at a step, refused if it is negative; schedules may end at 0."""
    value = value_at(rate, step)
    if not 0 <= value < math.inf:
        raise ConfigError(f"{owner}: learning_rate must be >= 0, got {value} at step {step}")
    return value
