"""One run under the protocol all methods share.

The same data, split, initial weights and order of batches for a seed; validation at the same
intervals; the weights that validation selects are scored on the test set, which is read once. At
every validation the curve notes steps, evaluations, wall-clock and CPU seconds.
"""

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from torch import nn

from hardstep import nn as hard
from hardstep.bench.methods import Plan, build
from hardstep.bench.records import Record
from hardstep.data import Batches, DataSet
from hardstep.errors import ConfigError
from hardstep.optim import StepReport
from hardstep.optim.trainable import Trainable
from hardstep.tasks import Task
from hardstep.training import Callback, Run, Score, Validation, fit

Axis = Literal["steps", "evals", "time"]
POINTS = 40  # of a curve, about
TRIALS = 3  # steps that tell how long one takes


@dataclass(frozen=True)
class Budget:
    """What a run may spend: optimizer steps, candidate evaluations or wall-clock seconds."""

    axis: Axis
    amount: float

    def __post_init__(self) -> None:
        if self.axis not in ("steps", "evals", "time") or not self.amount > 0:
            raise ConfigError(
                f"a budget is so many steps, evals or time (seconds), got {self.amount} "
                f"{self.axis!r}"
            )


class CurveLog(Callback):
    """Notes every axis at every validation, and stops when the evaluations are spent."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        names = ("value", "steps", "evaluations", "seconds", "cpu_seconds")
        self.curve: dict[str, list[float]] = {name: [] for name in names}
        self._cpu = time.process_time()

    def on_step(self, run: Run, report: StepReport) -> None:
        """Stop once another step like this one would exceed the evaluations."""
        if self.budget.axis == "evals":
            after = run.optimizer.evaluations + report.evaluations
            if after > self.budget.amount:
                run.stop("evaluations")

    def on_validation(self, run: Run, score: Score) -> None:
        """One more point."""
        cpu = time.process_time() - self._cpu
        point = (score.value, score.step, score.evaluations, score.seconds, cpu)
        for name, number in zip(self.curve, point, strict=True):
            self.curve[name].append(number)


class Trained(NamedTuple):
    """A run before its test set is read."""

    record: Record
    model: nn.Module  # with the weights that validation selected
    dataset: DataSet
    optimizer: Trainable


def run_method(
    task: Task, data: str, method: str, seed: int, budget: Budget, options: Mapping[str, Any]
) -> Record:
    """Train, select on validation, read the test set once; returns a record."""
    done = train(task, data, method, seed, budget, options)
    score = task.score(done.model, done.dataset.open_test())
    return done.record | {"test": score, "test_reads": 1}


def train(
    task: Task, data: str, method: str, seed: int, budget: Budget, options: Mapping[str, Any]
) -> Trained:
    """Train and select on validation; the test set stays closed."""
    dataset, model = task.data(seed), hard.build(task.model, seed)
    steps = planned_steps(task, dataset, model, method, seed, budget, options)
    optimizer = build(method, Plan(task, model, steps, seed), options)
    log = CurveLog(budget)
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
        callbacks=[log],
    )
    assert outcome.best is not None
    record = {
        "task": task.name,
        "data": data,
        "method": method,
        "seed": seed,
        "budget": {"axis": budget.axis, "amount": budget.amount},
        "options": dict(options),
        "steps": outcome.steps,
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "cpu_seconds": log.curve["cpu_seconds"][-1],
        "selected_step": outcome.best.step,
        "valid": outcome.best.value,
        "test_reads": 0,
        "curve": log.curve,
        "stopped": outcome.stopped,
    }
    return Trained(record, model, dataset, optimizer)


def planned_steps(
    task: Task,
    dataset: DataSet,
    model: nn.Module,
    method: str,
    seed: int,
    budget: Budget,
    options: Mapping[str, Any],
) -> int:
    """How many steps the budget allows: schedules and validation intervals need to know."""
    if budget.axis == "steps":
        return max(1, int(budget.amount))
    trial = deepcopy(model)
    optimizer = build(method, Plan(task, trial, 1 + TRIALS, seed), options)
    batches = list(islice(iter(Batches(dataset.train, task.batch_size, seed)), 1 + TRIALS))
    optimizer.step(*batches[0], task.loss_fn)  # compiles
    before, began = optimizer.evaluations, time.perf_counter()
    for batch in batches[1:]:
        optimizer.step(*batch, task.loss_fn)
    taken = len(batches) - 1
    if budget.axis == "evals":
        each = (optimizer.evaluations - before) / taken
    else:
        each = (time.perf_counter() - began) / taken
    return max(1, int(budget.amount / each))
