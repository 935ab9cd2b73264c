"""What callbacks see of a training run, and what is saved of it."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hardstep.errors import CheckpointError, DataError, ObjectiveError
from hardstep.evaluation import LossFunction, call_model, isolate
from hardstep.evaluation.objectives import as_number
from hardstep.evaluation.sandbox import keep
from hardstep.optim import Coverage, PolyStep, StepReport
from hardstep.training.batches import check_target, split_batch
from hardstep.training.checkpoints import check_stream, check_weights, name_way_out

NONFINITE_STEPS = 10  # from the first on; a batch or two may be bad, ten in a row are no accident


class Trainable(Protocol):
    """What `fit` needs of an optimizer: PolyStep has it, and so has every baseline."""

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
        """Everything needed to resume bit for bit, next to the model's own weights."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any], /) -> None:
        """Resume from a saved state."""
        ...


@dataclass(frozen=True)
class Metric:
    """A number per batch, averaged over examples.

    Args:
        name: For logs.
        function: Of (output, target); returns the mean over the batch.
        higher_is_better: Which way selection goes.
        percent: Whether to show it in percent.
    """

    name: str
    function: Callable[[Any, Any], Tensor]
    higher_is_better: bool = False
    percent: bool = False

    @property
    def sign(self) -> float:
        """Times this, more is better."""
        return 1.0 if self.higher_is_better else -1.0

    @property
    def factor(self) -> float:
        """From a score to what is shown of it."""
        return 100.0 if self.percent else 1.0

    def format(self, value: float) -> str:
        """A score, for reading."""
        return f"{100 * value:.1f} %" if self.percent else f"{value:.4g}"

    def describe(self) -> dict[str, Any]:
        """What records say of it."""
        return {
            "name": self.name,
            "higher_is_better": self.higher_is_better,
            "percent": self.percent,
        }


def _accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=-1) == target).double().mean()


ACCURACY = Metric("accuracy", _accuracy, higher_is_better=True, percent=True)


@dataclass(frozen=True)
class Score:
    """One validation."""

    step: int
    value: float
    evaluations: int
    seconds: float
    cpu_seconds: float = 0.0  # of this process, all threads
    interactions: int = 0  # with a simulator, by candidates; 0 where the model plays none


@dataclass
class Run:
    """A run in progress; callbacks may read all of it and call `stop` and `say`."""

    model: nn.Module
    optimizer: Trainable
    metric: Metric | None
    total_steps: int  # 0 if not known beforehand
    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    history: list[Score] = field(default_factory=list)
    best: Score | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    stopped: str = ""  # why, once it has
    steps_at_goal: int = 0  # in a row, the last one included
    selects: bool = True  # whether the best weights are kept as the result
    has_finite_loss: bool = False  # whether a step has had one
    nonfinite_steps: int = 0  # steps without one
    stream: dict[str, Any] = field(default_factory=dict)  # what identifies the batches
    seconds_before: float = 0.0
    cpu_before: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    cpu_started: float = field(default_factory=time.process_time)
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    @property
    def step(self) -> int:
        """Steps taken, earlier sessions included."""
        return self.optimizer.steps

    @property
    def seconds(self) -> float:
        """Time spent, earlier sessions included."""
        return self.seconds_before + time.perf_counter() - self.started

    @property
    def cpu_seconds(self) -> float:
        """CPU time spent by this process, earlier sessions included."""
        return self.cpu_before + time.process_time() - self.cpu_started

    @property
    def interactions(self) -> int:
        """Steps of a simulator that training has taken, earlier sessions included."""
        return int(getattr(self.model, "interactions", 0))

    def stop(self, reason: str) -> None:
        """End the run after this step."""
        self.stopped = self.stopped or reason

    def say(self, text: str) -> None:
        """Tell the user something."""
        for listener in self.listeners:
            listener(text)

    def warn(self, text: str) -> None:
        """Tell the user something that must not be missed, also where no callback shows it."""
        if self.listeners:
            self.say(text)
        else:
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def record(self, value: float) -> Score:
        """Take in a validation; if validation selects, the weights of the best one are kept."""
        spent = (self.optimizer.evaluations, self.seconds, self.cpu_seconds)
        score = Score(self.step, value, *spent, self.interactions)
        self.history.append(score)
        if self.selects and (self.best is None or self._better(value, self.best.value)):
            self.best = score
            self.best_weights = copy_state(self.model.state_dict())
        return score

    def _better(self, value: float, than: float) -> bool:
        if math.isnan(than):
            return not math.isnan(value)
        higher = self.metric is not None and self.metric.higher_is_better
        return value > than if higher else value < than

    def select_best(self) -> None:
        """Give the model the weights that validation selected, if there was one."""
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)

    def note_step(self, report: StepReport) -> None:
        """Take in a step's report; say it when it had no finite loss, or no difference.

        Raises:
            ObjectiveError: No step so far had a finite loss, and there have been enough.
        """
        optimizer = self.optimizer
        if math.isfinite(report.loss):
            self.has_finite_loss = True
            # PolyStep watches its steps itself.
            if self.step == 1 and report.dead_share == 1 and not isinstance(optimizer, PolyStep):
                self.say(
                    f"Dead start: every probe of the first step returned the same loss "
                    f"({report.loss:.4g}), so nothing can move. Enlarge the radius "
                    f"({report.probe_radius:g}); if no unit of the network fires, "
                    "hardstep.nn.wake(model, inputs) scales its layers."
                )
            return
        self.nonfinite_steps += 1
        if self.nonfinite_steps == 1:
            self.say(
                f"Every loss of step {self.step} was NaN or infinite, so it had nothing to go by: "
                "check the inputs, and what the model puts out for them."
            )
        if self.nonfinite_steps >= NONFINITE_STEPS:
            self.check_losses()

    def check_losses(self) -> None:
        """Refuse to call a run finished that has never had a finite loss.

        Raises:
            ObjectiveError: There has been none.
        """
        if self.nonfinite_steps and not self.has_finite_loss:
            raise ObjectiveError(
                f"fit: every loss of the first {self.nonfinite_steps} steps was NaN or infinite; "
                "check the inputs for NaN, and what the model puts out for them"
            )

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, in tensors, numbers and strings."""
        return {
            "model": copy_state(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "best_weights": self.best_weights,
            "best": None if self.best is None else _as_list(self.best),
            "history": [_as_list(score) for score in self.history],
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "stopped": self.stopped,
            "total_steps": self.total_steps,
            "sighted": self.has_finite_loss,
            "blind_steps": self.nonfinite_steps,
            "stream": self.stream,
            "interactions": self.interactions,
            "steps_at_goal": self.steps_at_goal,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume where the saved run was.

        Raises:
            CheckpointError: It is a run of another model, optimizer or stream of batches.
        """
        check_weights(self.model, saved["model"])
        if saved["best_weights"]:
            check_weights(self.model, saved["best_weights"])
        check_stream(self.stream, saved.get("stream", {}))  # not in older checkpoints
        try:
            self.optimizer.load_state_dict(saved["optimizer"])
        except CheckpointError as error:
            planned = int(saved.get("total_steps", 0))
            raise name_way_out(error, self.total_steps, planned) from error
        self.model.load_state_dict(saved["model"])
        self.best_weights = dict(saved["best_weights"])
        self.best = None if saved["best"] is None else Score(*saved["best"])
        self.history = [Score(*row) for row in saved["history"]]
        self.epoch, self.batch = int(saved["epoch"]), int(saved["batch"])
        self.seconds_before = float(saved["seconds"])
        self.cpu_before = float(saved.get("cpu_seconds", 0.0))  # not in checkpoints before 0.2
        # Neither is in older checkpoints, whose runs are not refused for it.
        self.has_finite_loss = bool(saved.get("sighted", True))
        self.nonfinite_steps = int(saved.get("blind_steps", 0))
        self.steps_at_goal = int(saved.get("steps_at_goal", 0))
        if hasattr(self.model, "interactions"):
            self.model.interactions = int(saved.get("interactions", 0))  # type: ignore[assignment]
        self.started, self.cpu_started = time.perf_counter(), time.process_time()


def _as_list(score: Score) -> list[float]:
    return list(astuple(score))


def copy_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's state, detached from the model."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@torch.no_grad()
def mean_score(model: nn.Module, batches: Iterable[Any], function: Callable[..., Tensor]) -> float:
    """A per-batch mean, averaged over all examples; the model runs in evaluation mode.

    Raises:
        DataError: There is no batch.
    """
    total, count = 0.0, 0
    with isolate(model), keep(model.parameters()):
        model.eval()
        for batch in batches:
            inputs, target = split_batch(batch)
            check_target(batch, target, function)
            output = call_model(model, inputs)
            size = _batch_size(inputs)
            value = function(output) if target is None else function(output, target)
            total += as_number("metric", value) * size
            count += size
    if not count:
        raise DataError(
            "there is no example to score: pass a list, a DataLoader or another object that can "
            "be iterated again at each validation, not a generator"
        )
    return total / count


@torch.no_grad()
def follow_statistics(model: nn.Module, inputs: Any) -> None:
    """Let running statistics (BatchNorm) see a batch, which the optimizer's probes never do."""
    kept = any(getattr(module, "track_running_stats", False) for module in model.modules())
    if model.training and kept:
        with torch.random.fork_rng(devices=[]):
            call_model(model, inputs)


def _batch_size(inputs: Any) -> int:
    while not isinstance(inputs, Tensor):
        inputs = next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs[0]
    return len(inputs) if inputs.dim() else 1
