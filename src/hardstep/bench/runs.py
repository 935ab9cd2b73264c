"""One run under the protocol all methods share.

The same data, split, initial weights and order of batches for a seed; validation at the same
intervals; the weights that validation selects are scored on the test set, which is read once. At
every validation the curve notes steps, evaluations, wall-clock and CPU seconds.
"""

import hashlib
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hardstep import nn as hard
from hardstep import tasks
from hardstep._checks import is_count
from hardstep._files import provenance
from hardstep.bench.axes import PLAYED, Budget
from hardstep.bench.methods import Blueprint, build
from hardstep.bench.records import Record, to_number
from hardstep.data import Batches, DataSet
from hardstep.errors import CheckpointError, ConfigError
from hardstep.optim import PolyStep, StepReport
from hardstep.optim.settings import describe
from hardstep.tasks import Task, stop_at_goal
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
PLAYED_POINTS = 160  # at most; fewer of a population, which takes few of the task's steps
TRIALS = 3  # steps, at least, that tell how long one takes
MOST_TRIALS = 100  # where most steps answer from a plan of before
MOST_STEPS = 2.0**53  # of any budget; a larger number of them is no whole float
MOST_PLAYED_STEPS = 10**6  # of a budget of interactions, which ends a run long before
SAVE_SECONDS = 30.0  # between checkpoints: short runs write none before they end
Options = tuple[tuple[str, Any], ...]  # by name, in order


@dataclass(frozen=True)
class Job:
    """What to run.

    Args:
        task: Its name.
        data: Its data set's name.
        method: Its name.
        seed: Of data, weights, batches and method.
        budget: What the run may spend.
        options: Given; a sweep leaves them as they are.
        stage: Of a sweep, which keeps the test set closed; 0 for a reported run.
        study: The ablation it belongs to.
        variant: Its name in there.
        closed: Whether the test set stays closed: for choosing settings.
        sweep: Seeds that a sweep averages over, which adds to the options before the run; none,
            no sweep.
        sweep_amount: Budget of every run of the sweep.
    """

    task: str
    data: str
    method: str
    seed: int
    budget: Budget
    options: Options = ()
    stage: int = 0
    study: str = ""
    variant: str = ""
    closed: bool = False
    sweep: tuple[int, ...] = ()
    sweep_amount: float = 0.0

    @property
    def keeps_test_closed(self) -> bool:
        """Whether it is for choosing settings, on validation."""
        return self.closed or self.stage > 0

    @cached_property
    def key(self) -> str:
        """What makes a run the same run."""
        return _key(self.task, self.data, self.method, self.seed, self.budget.axis,
                    self.budget.amount, dict(self.options), self.keeps_test_closed, self.study,
                    self.variant)  # fmt: skip

    def run(self, folder: Path | None = None) -> Record:
        """Carry it out; with a folder it can be interrupted and resumed."""
        found = run_job(self, checkpoint=None if folder is None else self._checkpoint(folder))
        labels = {"stage": self.stage, "study": self.study, "variant": self.variant}
        return found | {name: label for name, label in labels.items() if label} | provenance()

    def forget(self, folder: Path) -> None:
        """Remove what an interrupted run would have needed; it is recorded now."""
        self._checkpoint(folder).unlink(missing_ok=True)

    def _checkpoint(self, folder: Path) -> Path:
        return folder / f"{hashlib.sha256(self.key.encode()).hexdigest()[:16]}.pt"


def key_of(record: Record) -> str:
    """The key of the job a record came from; empty if it came from none."""
    budget, options = record.get("budget"), record.get("options")
    if not isinstance(options, dict) or not isinstance(budget, dict):
        return ""
    axis, amount, closed = budget.get("axis"), budget.get("amount"), "test" not in record
    if not isinstance(axis, str) or not isinstance(amount, int | float):
        return ""
    return _key(record["task"], record["data"], record["method"], record["seed"], axis, amount,
                options, closed, record.get("study", ""), record.get("variant", ""))  # fmt: skip


def _key(
    task: str, data: str, method: str, seed: int, axis: str, amount: float,
    options: Mapping[str, Any], closed: bool, study: str, variant: str,
) -> str:  # fmt: skip
    parts = [task, data, method, seed, axis, float(amount), sorted(options.items()), closed]
    return json.dumps([*parts, study, variant])


class SpendingLimit(Callback):
    """Stops a run that has used up what it may spend, or whose next step would.

    Evaluations of a step are known beforehand. Interactions are not: an episode may end at once or
    last to the horizon. So the step that uses them up is the last one.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def on_start(self, run: Run) -> None:
        """A run that is resumed may have been at its end."""
        if run.step:
            self._look_ahead(run)

    def on_step(self, run: Run, report: StepReport) -> None:
        """After every step."""
        self._look_ahead(run)

    def _look_ahead(self, run: Run) -> None:
        after = run.optimizer.evaluations + run.optimizer.evaluations_per_step
        if self.budget.axis == "evals" and after > self.budget.amount:
            run.stop("evaluations")
        if self.budget.axis == PLAYED and run.interactions >= self.budget.amount:
            run.stop(PLAYED)


def run_job(
    job: Job,
    *,
    task: Task | None = None,
    checkpoint: Path | None = None,
    watching: Sequence[Callback] = (),
) -> Record:
    """Train, select on validation and, unless it is for choosing settings, read the test set once.

    Args:
        job: What to run; its sweep, if any, is over.
        task: The one the job names, if it is at hand.
        checkpoint: Where the run is saved; the same call resumes from there.
        watching: Further callbacks.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        DataError: Somebody reads the test set meanwhile, or has before.
    """
    _reset_peak_memory()
    task = tasks.find(job.task, job.data) if task is None else task
    dataset, model = task.data(job.seed), hard.build(task.model, job.seed)
    with dataset.seal():
        record = _train(job, task, dataset, model, checkpoint, watching)
    if job.keeps_test_closed:
        return record
    test = dataset.open_test()
    scores = {"test": task.score(model, test), **task.score_also(model, test, "test")}
    numbers = {name: to_number(score) for name, score in scores.items()}
    return record | numbers | {"test_reads": dataset.test_reads}


def _train(
    job: Job,
    task: Task,
    dataset: DataSet,
    model: nn.Module,
    checkpoint: Path | None,
    watching: Sequence[Callback],
) -> Record:
    """Leave the weights that validation selects in the model."""
    budget, seed, resume = job.budget, job.seed, checkpoint is not None and checkpoint.exists()
    steps = _saved_steps(checkpoint) if resume else planned_steps(job, task, dataset, model)
    played = budget.amount if budget.axis == PLAYED else None
    optimizer = build(job.method, Blueprint(task, model, steps, seed, played), dict(job.options))
    limit = {"time": None, PLAYED: MOST_PLAYED_STEPS}.get(budget.axis, steps)
    kept = Checkpoint(checkpoint, SAVE_SECONDS, {"steps": steps}, False) if checkpoint else None
    outcome = fit(
        model,
        Batches(dataset.train, task.batch_size, seed),
        Validation(
            Batches(dataset.valid, task.batch_size, seed, shuffle=False),
            task.metric,
            every=max(1, steps // POINTS) if played is None else -(-steps // PLAYED_POINTS),
            selects=task.selects,
        ),
        loss_fn=task.loss_fn,
        optimizer=optimizer,
        steps=limit,
        seconds=budget.amount if budget.axis == "time" else None,
        callbacks=[SpendingLimit(budget), *stop_at_goal(task), *watching],
        checkpoint=kept,
        resume=resume,
    )
    if outcome.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if not outcome.history:
        raise ConfigError(
            f"a budget of {budget.amount:g} seconds is over before the first step of "
            f"{job.method} on {task.name}; give more"
        )
    return _record(job, task, outcome, optimizer)


def _saved_steps(checkpoint: Path | None) -> int:
    assert checkpoint is not None
    steps = checkpoints.load(checkpoint).get("meta", {}).get("steps")
    if not is_count(steps, least=1):
        raise CheckpointError(
            f"checkpoint {checkpoint} does not say how many steps its run takes; delete it, and "
            "the run starts again"
        )
    return steps


def _record(job: Job, task: Task, outcome: FitResult, optimizer: Trainable) -> Record:
    """Scores that are not finite are left empty: JSON has no other word for them."""
    chosen = outcome.best if task.selects else outcome.history[-1]
    assert chosen is not None
    curve = {
        "value": [to_number(score.value) for score in outcome.history],
        "steps": [score.step for score in outcome.history],
        "evaluations": [score.evaluations for score in outcome.history],
        "seconds": [score.seconds for score in outcome.history],
        "cpu_seconds": [score.cpu_seconds for score in outcome.history],
    }
    own: Record = {}  # what not every method or task has
    if outcome.interactions:
        curve[PLAYED] = [score.interactions for score in outcome.history]
        own[PLAYED] = outcome.interactions
    if isinstance(optimizer, PolyStep):
        own["column_violation"] = optimizer.coverage().statistics.column_violation
    return {
        "task": job.task,
        "data": job.data,
        "method": job.method,
        "seed": job.seed,
        "budget": asdict(job.budget),
        "options": dict(job.options),
        "settings": describe(optimizer.settings) if isinstance(optimizer, PolyStep) else "",
        "metric": task.metric.describe(),
        "steps": outcome.steps,
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "cpu_seconds": outcome.history[-1].cpu_seconds,
        "selected_step": chosen.step,
        "valid": to_number(chosen.value),
        "test_reads": 0,  # it is sealed until now
        "curve": curve,
        **own,
        "peak_memory_bytes": _peak_memory(),
        "stopped": outcome.stopped,
    }


def planned_steps(job: Job, task: Task, dataset: DataSet, model: nn.Module) -> int:
    """How many steps the budget allows: schedules and validation intervals need to know.

    Raises:
        ConfigError: Not even one.
    """
    budget, seed = job.budget, job.seed
    if budget.axis == PLAYED:  # episodes grow longer as a policy learns: no step tells their length
        return task.steps  # which schedules pass as the budget is spent, however many are taken
    if budget.axis == "steps":
        return max(1, int(min(budget.amount, MOST_STEPS)))
    blueprint = Blueprint(task, deepcopy(model), 1 + TRIALS, seed)
    optimizer = build(job.method, blueprint, dict(job.options))
    if budget.axis == "evals" and optimizer.evaluations_per_step > budget.amount:
        raise ConfigError(
            f"one step of {job.method} on {task.name} takes "
            f"{optimizer.evaluations_per_step:,} evaluations, the budget is {budget.amount:,.0f}; "
            "give at least that many"
        )
    evaluations, seconds = _step_cost(
        optimizer, task, Batches(dataset.train, task.batch_size, seed)
    )
    cost = evaluations if budget.axis == "evals" else seconds
    return max(1, int(min(budget.amount / cost, MOST_STEPS)))


def _step_cost(optimizer: Trainable, task: Task, batches: Batches) -> tuple[float, float]:
    """Evaluations and seconds of a step, on average.

    The last of the trials solves: with plan reuse a solve and what coasts on it count together.
    """
    stream = _repeat(batches)
    optimizer.step(*next(stream), task.loss_fn)  # compiles
    before, began = optimizer.evaluations, time.perf_counter()
    for taken in range(1, MOST_TRIALS + 1):
        optimizer.step(*next(stream), task.loss_fn)
        if taken >= TRIALS and optimizer.report is not None and optimizer.report.solved:
            break
    evaluations, seconds = optimizer.evaluations - before, time.perf_counter() - began
    return evaluations / taken, seconds / taken


def _repeat(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in count():
        batches.set_epoch(epoch)
        yield from batches


def _reset_peak_memory() -> None:
    """Begin a new measurement of `_peak_memory`, where the system can (Linux)."""
    with suppress(OSError):  # then the peak is that of the process's whole life
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> int:
    """Bytes this process had resident at most since `_reset_peak_memory`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
