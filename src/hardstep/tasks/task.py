"""A task: everything needed to train one kind of model on one data set, and to score it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from hardstep._checks import check_count, check_factory, list_arguments
from hardstep.data import Batches, DataSet, Split
from hardstep.errors import ConfigError
from hardstep.optim import Settings
from hardstep.optim.presets import general
from hardstep.training import ACCURACY, Callback, Goal, Metric, mean_score

SCORE_BATCH = 1000  # examples per forward pass when scoring
VALIDATIONS = 40  # per run, about
CALLS = {  # what functions are called with
    "data": ("seed",),
    "model": (),
    "settings": ("steps",),
    "loss_fn": ("output", "target"),
    "twin": (),
}


@dataclass(frozen=True)
class Task:
    """One architecture on one data set.

    Args:
        name: What the user calls it.
        title: What it is, in a few words.
        data: The data set of a run seed.
        model: A new model; called under a seeded generator.
        settings: PolyStep's settings for a number of steps.
        steps: Default number of steps.
        batch_size: Examples per step.
        loss_fn: Of (output, target).
        metric: What is reported and selected on.
        twin: A new smooth twin of the model, for methods that need gradients.
        data_name: What the data are called in records.
        selects: Whether validation selects the weights; else the last ones are the result, and
            validation only shows how the run goes.
        goal: A loss at which nothing is left to learn; a run that has it for three steps in a row
            is over.
        also: What is reported of the test part beside the metric.
        panel: Draws what the model does with validation examples, of (axes, model, split).
    """

    name: str
    title: str
    data: Callable[[int], DataSet]
    model: Callable[[], nn.Module]
    settings: Callable[[int], Settings] = general
    steps: int = 200
    batch_size: int = 128
    loss_fn: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    metric: Metric = ACCURACY
    twin: Callable[[], nn.Module] | None = None
    data_name: str = "own"
    selects: bool = True
    goal: float | None = None
    also: tuple[Metric, ...] = ()
    panel: Callable[[Any, nn.Module, Split], None] | None = None

    def __post_init__(self) -> None:
        for field in CALLS:
            if field != "twin" or self.twin is not None:
                _check_function(self.name, field, getattr(self, field))
        for metric in (self.metric, *self.also):
            _check_metric(self.name, metric)
        for field in ("steps", "batch_size"):
            check_count(f"Task {self.name}: {field}", getattr(self, field))

    def score(self, model: nn.Module, split: Split) -> float:
        """The metric on a split."""
        return self._score(model, split, self.metric)

    def score_also(self, model: nn.Module, split: Split, part: str) -> dict[str, float]:
        """The other metrics on a split, by their keys in results."""
        return {key_of(metric, part): self._score(model, split, metric) for metric in self.also}

    def _score(self, model: nn.Module, split: Split, metric: Metric) -> float:
        batches = Batches(split, SCORE_BATCH, seed=0, shuffle=False)
        return mean_score(model, batches, metric.function)

    def validation_interval(self, steps: int, valid: Split) -> int:
        """Steps between validations: some 40 per run, fewer where that costs too much.

        Between two validations, steps see about as many training examples as validation has,
        each of them in thousands of probes; so even a short run spends its time on training.
        """
        return max(1, steps // VALIDATIONS, len(valid) // self.batch_size)

    def key(self, part: str) -> str:
        """What the score of a part is called in results: `test_accuracy`, `valid_mse`."""
        return key_of(self.metric, part)


def key_of(metric: Metric, part: str) -> str:
    """What a score is called in results."""
    return f"{part}_{metric.name.replace(' ', '_')}"


def stop_at_goal(task: Task) -> list[Callback]:
    """What ends a run of a task that has a goal, once it is there."""
    return [] if task.goal is None else [Goal(task.goal)]


def _check_function(task: str, field: str, value: Any) -> None:
    """Refuse what is not a function, or not of what it will be called with.

    Raises:
        ConfigError: With how it is called and what was seen.
    """
    kind = type(value).__name__
    if not callable(value):
        raise ConfigError(f"Task {task}: {field} must be a function, got {kind}")
    if not CALLS[field]:
        check_factory(f"Task {task}: {field}", value)
    names = list_arguments(value, len(CALLS[field]))
    if names is not None:
        raise ConfigError(
            f"Task {task}: {field} is called as {field}({', '.join(CALLS[field])}), got a function "
            f"of ({', '.join(names)})"
        )


def _check_metric(task: str, value: Any) -> None:
    """Refuse what is not a metric: a bare function does not say which way is better."""
    if not isinstance(value, Metric):
        raise ConfigError(
            f"Task {task}: metric must be a hardstep.training.Metric, got {type(value).__name__}; "
            'write Metric("name", function, higher_is_better=True), or False'
        )
