"""A cell of a comparison: one method on one task with one budget, its sweep and its seeds.

What is still to be run follows from the records alone: the first stage of the sweep, then the
second around the best of the first, then the seeds with the best of both.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hardstep import tasks
from hardstep._files import provenance
from hardstep.bench import tuning
from hardstep.bench.protocol import Budget, Trial, run_trial, train
from hardstep.bench.records import Record, score_of

Chosen = tuple[tuple[str, Any], ...]  # options by name


@dataclass(frozen=True)
class Job:
    """One run."""

    task: str
    data: str
    method: str
    seed: int
    budget: Budget
    options: Chosen = ()
    stage: int = 0  # of a sweep, which keeps the test set closed; 0 for a reported run
    study: str = ""
    variant: str = ""
    closed: bool = False  # the test set stays closed here, too

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
        task = tasks.find(self.task, self.data)
        trial = Trial(task, self.method, self.seed, self.budget, dict(self.options))
        kept = None if folder is None else folder / f"{_digest(self.key)}.pt"
        found = train(trial, kept).record if self.keeps_test_closed else run_trial(trial, kept)
        labels = {"stage": self.stage, "study": self.study, "variant": self.variant}
        return found | {name: label for name, label in labels.items() if label} | provenance()

    def forget(self, folder: Path) -> None:
        """Remove what an interrupted run would have needed; it is recorded now."""
        (folder / f"{_digest(self.key)}.pt").unlink(missing_ok=True)


def key_of(record: Record) -> str:
    """The key of the job a record came from; empty if it came from none."""
    budget, options = record.get("budget"), record.get("options")
    if not isinstance(options, dict) or not isinstance(budget, dict):
        return ""
    axis, amount, sweep = budget.get("axis"), budget.get("amount"), "test" not in record
    if not isinstance(axis, str) or not isinstance(amount, int | float):
        return ""
    return _key(record["task"], record["data"], record["method"], record["seed"], axis, amount,
                options, sweep, record.get("study", ""), record.get("variant", ""))  # fmt: skip


def _key(
    task: str, data: str, method: str, seed: int, axis: str, amount: float,
    options: Mapping[str, Any], sweep: bool, study: str, variant: str,
) -> str:  # fmt: skip
    parts = [task, data, method, seed, axis, float(amount), sorted(options.items()), sweep]
    return json.dumps([*parts, study, variant])


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One method on one task with one budget.

    Args:
        task: Its name.
        data: Its data set's name.
        method: Its name.
        budget: Of every reported run.
        seeds: Of the reported runs.
        options: Given; a sweep leaves them as they are.
        sweep: Seeds a configuration of the sweep is averaged over; none, no sweep.
        sweep_amount: Budget of every configuration of the sweep.
        study: The ablation it belongs to.
        variant: Its name in there.
        closed: Whether the test set stays closed: for choosing settings.
    """

    task: str
    data: str
    method: str
    budget: Budget
    seeds: tuple[int, ...]
    options: Chosen = ()
    sweep: tuple[int, ...] = ()
    sweep_amount: float = 0.0
    study: str = ""
    variant: str = ""
    closed: bool = False

    @property
    def size(self) -> int:
        """Runs altogether."""
        return sum(map(self.stage_size, tuning.STAGES)) + len(self.seeds)

    def stage_size(self, stage: int) -> int:
        """Runs of a stage of the sweep; the centre of the second is one of the first."""
        return len(self.sweep) * (len(self.first_stage) - (stage > 1)) if self.sweep else 0

    @cached_property
    def first_stage(self) -> list[Chosen]:
        """The configurations that a sweep begins with."""
        found = tuning.stage_options(self._settings, 1, {})
        return [tuple(sorted(options.items())) for options in found]

    @cached_property
    def _settings(self) -> tuple[tuning.Setting, ...]:
        task = tasks.find(self.task, self.data)
        return tuning.settings_of(task, self.method, self.budget.axis, dict(self.options))

    def todo(self, known: Mapping[str, Record]) -> list[Job]:
        """What can be run now and is not among the known records, by key."""
        for stage in tuning.STAGES if self.sweep else ():
            wanted = {job.key: job for group in self._stage(stage, known) for job in group}
            missing = [job for key, job in wanted.items() if key not in known]
            if missing:
                return missing
        chosen = self.chosen(known)
        jobs = [self._job(seed, self.budget, chosen, 0) for seed in self.seeds]
        return [job for job in jobs if job.key not in known]

    def tried(self, known: Mapping[str, Record]) -> int:
        """Runs of the sweep; configurations that both stages ask for count once."""
        jobs = (job for s in tuning.STAGES for group in self._stage(s, known) for job in group)
        return len({job.key for job in jobs})

    def chosen(self, known: Mapping[str, Record]) -> Chosen:
        """The options of reported runs; a sweep has to be complete."""
        if not self.sweep:
            return self.options
        groups = [group for stage in tuning.STAGES for group in self._stage(stage, known)]
        return tuple(sorted(tuning.best(self._scores(groups, known))[1].items()))

    def _stage(self, stage: int, known: Mapping[str, Record]) -> Iterator[list[Job]]:
        """The jobs of every configuration of a stage."""
        before = self._scores(self._stage(1, known), known) if stage > 1 else {}
        budget = Budget(self.budget.axis, self.sweep_amount)
        for options in tuning.stage_options(self._settings, stage, before):
            chosen = tuple(sorted(options.items()))
            yield [self._job(seed, budget, chosen, stage) for seed in self.sweep]

    def _scores(
        self, groups: Any, known: Mapping[str, Record]
    ) -> dict[str, tuple[float, dict[str, Any]]]:
        """Mean validation score of every configuration; higher is better."""
        found = {}
        for group in groups:
            records = [known[job.key] for job in group]
            up = records[0].get("metric", {}).get("higher_is_better", True)
            mean = math.fsum(score_of(record, "valid") for record in records) / len(records)
            options = dict(group[0].options)
            found[json.dumps(options)] = (mean if up else -mean, options)
        return found

    def _job(self, seed: int, budget: Budget, options: Chosen, stage: int) -> Job:
        rest = (stage, self.study, self.variant, self.closed)
        return Job(self.task, self.data, self.method, seed, budget, options, *rest)
