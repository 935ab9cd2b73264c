"""`fit`: train a model on batches, select on validation, survive interruptions."""

import math
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional

from hardstep._checks import check_count, is_number, show
from hardstep.errors import CheckpointError, ConfigError, WorkerError
from hardstep.evaluation import LossFunction, check_loss_fn
from hardstep.optim import PolyStep, presets
from hardstep.training import checkpoints
from hardstep.training.batches import (
    Stream,
    check_batches,
    check_target,
    check_tensors,
    num_batches,
    split_batch,
)
from hardstep.training.callbacks import Callback, EarlyStopping
from hardstep.training.checkpoints import Checkpoint
from hardstep.training.run import Metric, Run, Score, Trainable, follow_statistics, mean_score
from hardstep.training.saving import Saver

INTERRUPTED = "interrupted"
FINISHED = "finished"
HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
NEEDED = ("model", "seed", "step", "steps", "evaluations", "report", "state_dict")


@dataclass(frozen=True)
class Validation:
    """Held-out batches that select the weights.

    Args:
        batches: Iterated at each validation.
        metric: What to measure; the training loss if left out.
        every: Steps between validations; once per epoch if left out.
        selects: Whether the best weights are the result; else validations are only shown, and the
            last weights are.
    """

    batches: Iterable[Any]
    metric: Metric | None = None
    every: int | None = None
    selects: bool = True

    def __post_init__(self) -> None:
        if self.every is not None:
            check_count("Validation: every", self.every)
        check_batches("valid", self.batches)
        if not isinstance(self.metric, Metric | None):
            raise ConfigError(
                "Validation: metric must be ACCURACY or such as Metric('error', function), got "
                f"{self.metric!r}"
            )


@dataclass(frozen=True)
class FitResult:
    """How a run went. The model holds the selected weights if there was a validation."""

    steps: int
    evaluations: int
    seconds: float
    best: Score | None
    history: list[Score]
    stopped: str  # "finished", "interrupted", or why it stopped early
    interactions: int = 0  # with a simulator, if the model plays one


def fit(
    model: nn.Module,
    train: Iterable[Any],
    valid: Iterable[Any] | Validation | None = None,
    *,
    loss_fn: LossFunction = functional.cross_entropy,
    optimizer: Trainable | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | Path | str | None = None,
    resume: bool = False,
) -> FitResult:
    """Train until the first of `epochs`, `steps` and `seconds` is used up.

    Args:
        model: Any module.
        train: Batches (inputs, target); a DataLoader, `hardstep.data.Batches`, a list.
        valid: Batches to select on, or a `Validation` with a metric and an interval.
        loss_fn: Of (output, target); a mean over the batch.
        optimizer: For this model; PolyStep with `presets.general` and seed 0 if left out.
        epochs: Passes over `train`.
        steps: Optimizer steps.
        seconds: Wall-clock time, earlier sessions of a resumed run included.
        callbacks: What watches the run.
        checkpoint: Where to save; a run that is saved there already is not replaced.
        resume: Continue from the checkpoint. With the same arguments the result is bit for bit
            that of an uninterrupted run.

    Returns:
        What happened. Ctrl-C ends the run after the step in progress and returns too.

    Raises:
        ConfigError: An argument makes no sense.
        DataError: `train` or `valid` gave no batch.
        ObjectiveError: No loss was finite, from the first step on.
        CheckpointError: The checkpoint belongs to another run, or cannot be saved.
        WorkerError: No worker is left to evaluate; what there is has been saved.
    """
    limits = _Limits(epochs, steps, seconds)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"fit: model must be a module, got {show(model)}; see fit(model, train)")
    check_batches("train", train)
    check_loss_fn(loss_fn)
    validation = valid if isinstance(valid, Validation) or valid is None else Validation(valid)
    target = checkpoint if isinstance(checkpoint, Checkpoint | None) else Checkpoint(checkpoint)
    total = limits.total_steps(train)
    if optimizer is not None:
        _check_optimizer(optimizer, model)
    opt = optimizer or PolyStep(model, presets.general(total) if total else None)
    selects = validation is not None and validation.selects
    watching = _check_callbacks(callbacks, validated=selects)
    leads = bool(getattr(opt.evaluator, "leads", True))  # of ranks, one writes
    watching = [one for one in watching if leads or one.decides]
    stream = Stream(train, opt.seed)
    run = Run(model, opt, validation.metric if validation else None, total)
    run.stream = stream.identity()
    if target is not None and leads:
        checkpoints.check_place(target.path, resume)
    if resume:
        if target is None:
            raise CheckpointError("fit: resume needs the checkpoint to resume from")
        run.load_state_dict(checkpoints.load(target.path))
    run.selects = selects
    session = _Session(run, loss_fn, validation, watching, target if leads else None)
    silent = Callback.on_message
    run.listeners = [one.on_message for one in watching if type(one).on_message is not silent]
    with _interruptible(run):
        session.go(stream, limits)
    run.select_best()
    return FitResult(
        run.step,
        opt.evaluations,
        run.seconds,
        run.best,
        list(run.history),
        run.stopped,
        run.interactions,
    )


@dataclass(frozen=True)
class _Limits:
    """When a run ends: the first of these that is used up."""

    epochs: int | None
    steps: int | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None and self.seconds is None:
            raise ConfigError("fit needs a limit: give epochs, steps or seconds")
        for name in ("epochs", "steps"):
            if getattr(self, name) is not None:
                check_count(f"fit: {name}", getattr(self, name))
        if self.seconds is None:
            return
        if not is_number(self.seconds) or not 0 < self.seconds < math.inf:
            raise ConfigError(
                f"fit: seconds must be a number > 0 and finite, got {self.seconds!r}; leave it out "
                "for no limit of time"
            )

    def is_reached(self, run: Run) -> bool:
        """Whether one of them is used up."""
        return (
            (self.epochs is not None and run.epoch >= self.epochs)
            or (self.steps is not None and run.step >= self.steps)
            or (self.seconds is not None and run.seconds >= self.seconds)
        )

    def total_steps(self, train: Iterable[Any]) -> int:
        """Steps the run will take if nothing stops it, 0 if that is not known."""
        known = [self.steps] if self.steps is not None else []
        num = num_batches(train)
        if self.epochs is not None and num is not None:
            known.append(self.epochs * num)
        return min(known) if known else 0


class _Session:
    """One process's share of a run."""

    def __init__(
        self,
        run: Run,
        loss_fn: LossFunction,
        validation: Validation | None,
        callbacks: list[Callback],
        checkpoint: Checkpoint | None,
    ) -> None:
        self.run = run
        self.loss_fn = loss_fn
        self.validation = validation
        self.callbacks = callbacks
        self.saver = Saver(run, checkpoint)

    def go(self, stream: Stream, limits: _Limits) -> None:
        """Step until a limit, a callback or the user says stop."""
        run = self.run
        for callback in self.callbacks:
            callback.on_start(run)
        try:
            while not run.stopped and not limits.is_reached(run):
                for batch in stream.epoch(run.epoch, skip=run.batch):
                    self._step(batch)
                    if run.stopped or limits.is_reached(run):
                        break
                else:
                    run.epoch, run.batch = run.epoch + 1, 0
                    self._epoch_end()
            self._finish()
        except WorkerError as error:
            raise self._save_before(error) from error
        finally:
            for callback in self.callbacks:
                callback.on_end(run)

    def _save_before(self, error: WorkerError) -> WorkerError:
        """The same error, after what there is has been saved."""
        checkpoint = self.saver.checkpoint
        if checkpoint is None:
            return error
        self.saver.at_end()
        step = self.run.step
        saved = f"{error}; the run is saved after step {step} in {checkpoint.path}"
        return WorkerError(saved, error.told_by_all)

    def _step(self, batch: Any) -> None:
        run = self.run
        inputs, target = split_batch(batch)
        check_target(batch, target, self.loss_fn)
        try:
            run.optimizer.step(inputs, target, self.loss_fn)
        except TypeError as error:
            check_tensors(inputs, target, error)
            raise
        follow_statistics(run.model, inputs)
        run.batch += 1
        report = run.optimizer.report
        assert report is not None
        run.note_step(report)
        for callback in self.callbacks:
            callback.on_step(run, report)
        every = self.validation.every if self.validation else None
        if every is not None and run.step % every == 0:
            self._validate()
        self.saver.after_step()

    def _epoch_end(self) -> None:
        if self.validation and self.validation.every is None:
            self._validate()

    def _validate(self) -> None:
        assert self.validation is not None
        run, metric = self.run, self.validation.metric
        function = metric.function if metric else self.loss_fn
        score = run.record(mean_score(run.model, self.validation.batches, function))
        if math.isnan(score.value) and not any(math.isnan(s.value) for s in run.history[:-1]):
            run.say(
                f"Validation at step {run.step}: the {metric.name if metric else 'loss'} is NaN, "
                "which counts as worse than any number; check the batches of valid."
            )
        for callback in self.callbacks:
            callback.on_validation(run, score)
        self.saver.after_validation()

    def _finish(self) -> None:
        run = self.run
        run.stopped = run.stopped or FINISHED
        fresh = not run.history or run.history[-1].step != run.step
        if self.validation and run.stopped != INTERRUPTED and fresh and run.step:
            self._validate()
        self.saver.at_end()
        if run.stopped != INTERRUPTED:
            run.check_losses()


@contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    """The first Ctrl-C lets the step in progress end; a second one raises at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(signum: int, frame: Any) -> None:
        if run.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        run.stop(INTERRUPTED)
        run.say("Stopping after this step; press Ctrl-C again to stop at once.")

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _check_optimizer(optimizer: object, model: nn.Module) -> None:
    """Refuse an optimizer that is none of ours, or one of another model."""
    if isinstance(optimizer, type) or not all(hasattr(optimizer, name) for name in NEEDED):
        kind = optimizer if isinstance(optimizer, type) else type(optimizer)
        seen = f"{'the class' if kind is optimizer else 'a'} {kind.__name__}"
        raise ConfigError(
            "fit: optimizer must be an object such as PolyStep(model) or one of "
            f"hardstep.baselines, got {seen}"
        )
    if optimizer.model is not model:  # type: ignore[attr-defined]
        raise ConfigError("fit: the optimizer was built for another model")


def _check_callbacks(callbacks: object, validated: bool) -> list[Callback]:
    """The callbacks as a list.

    Raises:
        ConfigError: They are none, or one of them waits for validations that never come.
    """
    if not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"fit: callbacks must be a list, got {callbacks!r}; write callbacks=[…] around it"
        )
    for callback in callbacks:
        known = all(callable(getattr(callback, name, None)) for name in HOOKS)
        if isinstance(callback, type) or not known:
            raise ConfigError(
                f"fit: callbacks must hold objects of classes derived from "
                f"hardstep.training.Callback, got {callback!r}"
            )
        if isinstance(callback, EarlyStopping) and not validated:
            raise ConfigError("fit: EarlyStopping counts validations; give valid, or leave it out")
    return list(callbacks)
