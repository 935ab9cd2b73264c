"""One run under the protocol all methods share.

The same data, split, initial weights and order of batches for a seed; validation at the same
intervals; the weights that validation selects are scored on the test set, which is read once. At
every validation the curve notes steps, evaluations, wall-clock and CPU seconds.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from hardstep import nn as hard
from hardstep.bench.faults import BUDGETS, Axis, number
from hardstep.bench.methods import Plan, build
from hardstep.bench.peak_memory import forget_peak_memory, peak_memory
from hardstep.bench.records import Record
from hardstep.data import Batches, DataSet
from hardstep.errors import ConfigError
from hardstep.optim import PolyStep, StepReport
from hardstep.optim.settings import describe
from hardstep.tasks import Task
from hardstep.training import (
    INTERRUPTED,
    Callback,
    Checkpoint,
    FitResult,
    Run,
    Trainable,
    Validation,
    checkpoints,
    fit,
)

POINTS = 40  # of a curve, about
TRIALS = 3  # steps, at least, that tell how long one takes
MOST_TRIALS = 100  # where most steps answer from a plan of before
SAVE_SECONDS = 30.0  # between checkpoints: short runs write none before they end


@dataclass(frozen=True)
class Budget:
    """What a run may spend: optimizer steps, candidate evaluations or wall-clock seconds."""

    axis: Axis
    amount: float

    def __post_init__(self) -> None:
        if self.axis not in BUDGETS or not 0 < self.amount < math.inf:
            raise ConfigError(
                f"a budget is so many steps, evals or time (seconds), got {self.amount} "
                f"{self.axis!r}"
            )


@dataclass(frozen=True)
class Trial:
    """What is to be run."""

    task: Task
    method: str
    seed: int
    budget: Budget
    options: Mapping[str, Any] = field(default_factory=dict)


class EvaluationLimit(Callback):
    """Stops a run that another step could take beyond its evaluations."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def on_start(self, run: Run) -> None:
        """A run that is taken up again may have been at its end."""
        if run.step:
            self._look_ahead(run)

    def on_step(self, run: Run, report: StepReport) -> None:
        """After every step."""
        self._look_ahead(run)

    def _look_ahead(self, run: Run) -> None:
        after = run.optimizer.evaluations + run.optimizer.evaluations_per_step
        if self.budget.axis == "evals" and after > self.budget.amount:
            run.stop("evaluations")


class Trained(NamedTuple):
    """A run before its test set is read."""

    record: Record
    model: nn.Module  # with the weights that validation selected
    dataset: DataSet
    optimizer: Trainable


def run_trial(
    trial: Trial, checkpoint: Path | None = None, watching: Sequence[Callback] = ()
) -> Record:
    """Train, select on validation, read the test set once; returns a record.

    Raises:
        KeyboardInterrupt: Ctrl-C; with a checkpoint, the same call goes on from there.
    """
    done = train(trial, checkpoint, watching)
    score = trial.task.score(done.model, done.dataset.open_test())
    return done.record | {"test": number(score), "test_reads": done.dataset.test_reads}


def train(
    trial: Trial, checkpoint: Path | None = None, watching: Sequence[Callback] = ()
) -> Trained:
    """Train and select on validation; the test set stays closed.

    Raises:
        DataError: Somebody reads the test set meanwhile, or has before.
    """
    forget_peak_memory()
    task, seed = trial.task, trial.seed
    dataset, model = task.data(seed), hard.build(task.model, seed)
    with dataset.sealed():
        return _train(trial, dataset, model, checkpoint, watching)


def _train(
    trial: Trial,
    dataset: DataSet,
    model: nn.Module,
    checkpoint: Path | None,
    watching: Sequence[Callback],
) -> Trained:
    task, budget, seed = trial.task, trial.budget, trial.seed
    resume = checkpoint is not None and checkpoint.exists()
    steps = _saved_steps(checkpoint) if resume else planned_steps(trial, dataset, model)
    optimizer = build(trial.method, Plan(task, model, steps, seed), trial.options)
    kept = Checkpoint(checkpoint, SAVE_SECONDS, {"steps": steps}, False) if checkpoint else None
    outcome = fit(
        model,
        Batches(dataset.train, task.batch_size, seed),
        Validation(
            Batches(dataset.valid, task.batch_size, seed, shuffle=False),
            task.metric,
            every=max(1, steps // POINTS),
        ),
        loss_fn=task.loss_fn,
        optimizer=optimizer,
        steps=steps if budget.axis != "time" else None,
        seconds=budget.amount if budget.axis == "time" else None,
        callbacks=[EvaluationLimit(budget), *watching],
        checkpoint=kept,
        resume=resume,
    )
    if outcome.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.best is None:
        raise ConfigError(
            f"a budget of {budget.amount:g} seconds is over before the first step of "
            f"{trial.method} on {task.name}; give more"
        )
    return Trained(_record(trial, outcome, optimizer), model, dataset, optimizer)


def _saved_steps(checkpoint: Path | None) -> int:
    assert checkpoint is not None
    return int(checkpoints.load(checkpoint)["meta"]["steps"])


def _record(trial: Trial, outcome: FitResult, optimizer: Trainable) -> Record:
    """Scores that are not finite are left empty: JSON has no other word for them."""
    assert outcome.best is not None
    return {
        "task": trial.task.name,
        "data": trial.task.data_name,
        "method": trial.method,
        "seed": trial.seed,
        "budget": asdict(trial.budget),
        "options": dict(trial.options),
        "settings": describe(optimizer.settings) if isinstance(optimizer, PolyStep) else "",
        "metric": trial.task.metric.describe(),
        "steps": outcome.steps,
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.history[-1].cpu_seconds,
        "selected_step": outcome.best.step,
        "valid": number(outcome.best.value),
        "test_reads": 0,  # it is sealed until now
        "curve": {
            "value": [number(score.value) for score in outcome.history],
            "steps": [score.step for score in outcome.history],
            "evaluations": [score.evaluations for score in outcome.history],
            "seconds": [score.seconds for score in outcome.history],
            "cpu_seconds": [score.cpu_seconds for score in outcome.history],
        },
        "peak_memory_bytes": peak_memory(),
        "stopped": outcome.stopped,
    }


def planned_steps(trial: Trial, dataset: DataSet, model: nn.Module) -> int:
    """How many steps the budget allows: schedules and validation intervals need to know.

    Raises:
        ConfigError: Not even one.
    """
    task, budget, seed = trial.task, trial.budget, trial.seed
    if budget.axis == "steps":
        return max(1, int(budget.amount))
    copy = deepcopy(model)
    optimizer = build(trial.method, Plan(task, copy, 1 + TRIALS, seed), trial.options)
    if budget.axis == "evals" and optimizer.evaluations_per_step > budget.amount:
        raise ConfigError(
            f"one step of {trial.method} on {task.name} takes "
            f"{optimizer.evaluations_per_step:,} evaluations, the budget is {budget.amount:,.0f}; "
            "give at least that many"
        )
    evaluations, seconds = _step_cost(
        optimizer, task, Batches(dataset.train, task.batch_size, seed)
    )
    return max(1, int(budget.amount / (evaluations if budget.axis == "evals" else seconds)))


def _step_cost(optimizer: Trainable, task: Task, batches: Batches) -> tuple[float, float]:
    """Evaluations and seconds of a step, on average.

    The last of the trials solves: with plan reuse a solve and what coasts on it count together.
    """
    stream = _endless(batches)
    optimizer.step(*next(stream), task.loss_fn)  # compiles
    before, began = optimizer.evaluations, time.perf_counter()
    for taken in range(1, MOST_TRIALS + 1):
        optimizer.step(*next(stream), task.loss_fn)
        if taken >= TRIALS and optimizer.report is not None and optimizer.report.solved:
            break
    evaluations, seconds = optimizer.evaluations - before, time.perf_counter() - began
    return evaluations / taken, seconds / taken


def _endless(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in count():
        batches.set_epoch(epoch)
        yield from batches
