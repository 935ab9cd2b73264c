"""The sweep every method gets: nine configurations, then nine around the best of them.

Each configuration has the same budget and is judged on validation, averaged over the tuning seeds.
A stage has three levels, in equal ratios, of up to four settings (nine levels if there is but one).
Two settings are crossed; more share the nine configurations of an orthogonal array, in which every
pair of levels of every two settings occurs once. The second stage is recentered on the best of the
first, wherever it lies, with the square root of the ratios.

What is still to be run follows from the records alone: the first stage, then the second around the
best of the first, then the job itself with the best of both.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from hardstep import tasks
from hardstep.bench.axes import Budget
from hardstep.bench.methods import WITH_GRADIENTS, has_slope
from hardstep.bench.options import find_preset
from hardstep.bench.records import Record, score_of
from hardstep.bench.runs import Job, Options
from hardstep.bench.summary import metric_of
from hardstep.optim import Settings
from hardstep.schedules import length_at, value_at
from hardstep.tasks import Task

STAGES = (1, 2)
CONFIGURATIONS = 9  # per stage


class Setting(NamedTuple):
    """A setting to tune: where to begin, and the ratio between neighbors of the first stage.

    With a ratio of 1 it is not tuned: every configuration has it as it is.
    """

    name: str
    center: Any
    ratio: float
    multiple_of: int = 0  # of whole numbers; 0 for any number


_POPULATION = Setting("population", 64, 4.0, multiple_of=2)
_SETTINGS: dict[str, tuple[Setting, ...]] = {
    "openai-es": (Setting("sigma", 0.1, 3.0), Setting("learning_rate", 0.05, 3.0)),
    "cma-es": (Setting("sigma", 0.1, 3.0),),
    "eggroll": (Setting("sigma", 0.05, 3.0), Setting("learning_rate", 0.1, 3.0)),
    "mezo": (Setting("learning_rate", 1e-3, 10.0), Setting("mu", 1e-2, 3.0)),
    "spsa": (Setting("a", 0.1, 10.0), Setting("c", 0.1, 3.0)),
    "random": (Setting("sigma", 0.05, 3.0),),
    "adam": (Setting("learning_rate", 3e-3, 2.0),),
    "adam-hard": (Setting("learning_rate", 3e-3, 2.0),),
}
_SIZES: dict[str, tuple[Setting, ...]] = {  # where steps are not what is equal, their price is free
    "openai-es": (_POPULATION,),
    "cma-es": (_POPULATION,),
    "eggroll": (_POPULATION,),
    "random": (_POPULATION,),
}
_PARTICLE_DIM = Setting("particle_dim", 4, 2.0, multiple_of=1)
_POLYSTEP_SIZES: dict[str, tuple[Setting, ...]] = {  # by preset
    "task": (_PARTICLE_DIM, Setting("rank", 4, 2.0, multiple_of=1)),
    "frugal": (_PARTICLE_DIM, Setting("share", 0.1, 2.0)),
    "sketch": (Setting("particle_dim", 16, 2.0, multiple_of=1),),
}
_SLOPE = Setting("slope", math.sqrt(0.5 * 10), math.sqrt(10 / 0.5))  # from 0.5 to 10, as published


def settings_of(
    task: Task, method: str, axis: str, fixed: Mapping[str, Any] | None = None
) -> tuple[Setting, ...]:
    """What is tuned, populations only where the axis leaves them free; and what is fixed.

    Args:
        task: The task.
        method: The method's name.
        axis: What budgets are equal in.
        fixed: Options that every configuration has.
    """
    fixed = {} if fixed is None else fixed
    found = _polystep(task, axis, fixed) if method == "polystep" else _SETTINGS[method]
    if axis != "steps":
        found += _SIZES.get(method, ())
    if method in WITH_GRADIENTS and has_slope(task):
        found += (_SLOPE,)
    kept = tuple(setting for setting in found if setting.name not in fixed)
    return kept + tuple(Setting(name, value, 1.0) for name, value in fixed.items())


def _polystep(task: Task, axis: str, fixed: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Radii around those of the preset, and what a step costs unless steps are equal."""
    preset = fixed.get("preset", "frugal" if axis == "evals" else "task")
    found = _radii(find_preset(task, task.steps, preset), preset)
    if axis != "steps":
        found += _POLYSTEP_SIZES.get(preset, ())
    return found if preset == "task" else (*found, Setting("preset", preset, 1.0))


def _radii(settings: Settings, preset: str) -> tuple[Setting, ...]:
    # A sweep of few evaluations flatters long steps of single units, so it does not look far.
    ratios = {"step_radius": 1.6 if preset == "frugal" else 2.0, "probe_radius": 2.0}
    temperature = float(value_at(settings.temperature, 0))
    return tuple(
        Setting(name, length_at(name, getattr(settings, name), 0, temperature), ratio)
        for name, ratio in ratios.items()
    )


def grid(
    settings: Sequence[Setting], centers: Mapping[str, Any], stage: int
) -> Iterator[dict[str, Any]]:
    """Nine configurations around the centers."""
    tuned = [setting for setting in settings if setting.ratio > 1]
    fixed = {s.name: centers[s.name] for s in settings if s not in tuned}
    alone = len(settings) == 1
    for exponents in _design(len(tuned), alone):
        found = dict(fixed)
        for setting, exponent in zip(tuned, exponents, strict=True):
            ratio = setting.ratio if stage == 1 else math.sqrt(setting.ratio)
            found[setting.name] = _round(setting, centers[setting.name] * ratio**exponent)
        yield found


def _design(num: int, alone: bool) -> Iterator[tuple[int, ...]]:
    """Exponents of nine configurations of `num` settings.

    Fewer where one or none is left beside fixed ones: nine levels suit a method that has but one.
    """
    if num < 2:
        levels = CONFIGURATIONS if alone else 3
        yield from ((k - levels // 2,) for k in range(levels)) if num else ((),)
        return
    for a in (-1, 0, 1):
        for b in (-1, 0, 1):
            rest = ((a + b + 1) % 3 - 1, (a - b + 1) % 3 - 1)
            yield (a, b, *rest)[:num]


def _round(setting: Setting, value: float) -> float:
    if not setting.multiple_of:
        return float(f"{value:.6g}")  # the same text in a file, a table and on the command line
    return max(setting.multiple_of, setting.multiple_of * round(value / setting.multiple_of))


def stage_options(
    settings: Sequence[Setting], stage: int, scores: Mapping[str, tuple[float, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Configurations of a stage; the second needs the scores of the first, by name."""
    centers = {setting.name: setting.center for setting in settings}
    if stage > 1:
        centers = dict(best(scores)[1])
    return list(grid(settings, centers, stage))


def best(scores: Mapping[str, tuple[float, dict[str, Any]]]) -> tuple[float, dict[str, Any]]:
    """The best score, higher is better, and its configuration; the first of equals.

    Where runs diverged the score is not finite, and counts as the worst.
    """
    return max(scores.values(), key=lambda item: item[0] if math.isfinite(item[0]) else -math.inf)


@dataclass(frozen=True)
class Sweep:
    """What finds the options of a job that has one; without seeds of a sweep there is none."""

    job: Job

    @cached_property
    def _settings(self) -> tuple[Setting, ...]:
        job = self.job
        task = tasks.find(job.task, job.data)
        return settings_of(task, job.method, job.budget.axis, dict(job.options))

    @cached_property
    def first_options(self) -> list[Options]:
        """The configurations that it begins with."""
        found = stage_options(self._settings, 1, {})
        return [tuple(sorted(options.items())) for options in found]

    def size(self, stage: int) -> int:
        """Runs of a stage; the center of the second is one of the first."""
        seeds = len(self.job.sweep)
        return seeds * (len(self.first_options) - (stage > 1)) if seeds else 0

    def missing(self, known: Mapping[str, Record]) -> list[Job]:
        """What can be run now and is not among the known records, by key."""
        for stage in STAGES if self.job.sweep else ():
            wanted = {job.key: job for group in self._stage(stage, known) for job in group}
            missing = [job for key, job in wanted.items() if key not in known]
            if missing:
                return missing
        return []

    def choose(self, known: Mapping[str, Record]) -> Options:
        """The best options; all its runs have to be known."""
        if not self.job.sweep:
            return self.job.options
        groups = [group for stage in STAGES for group in self._stage(stage, known)]
        return tuple(sorted(best(_scores(groups, known))[1].items()))

    def count_tried(self, known: Mapping[str, Record]) -> int:
        """Its runs; configurations that both stages ask for count once."""
        jobs = (job for s in STAGES for group in self._stage(s, known) for job in group)
        return len({job.key for job in jobs})

    def _stage(self, stage: int, known: Mapping[str, Record]) -> Iterator[list[Job]]:
        """The runs of every configuration of a stage."""
        before = _scores(self._stage(1, known), known) if stage > 1 else {}
        job = replace(self.job, budget=Budget(self.job.budget.axis, self.job.sweep_amount),
                      stage=stage, sweep=())  # fmt: skip
        for options in stage_options(self._settings, stage, before):
            chosen = tuple(sorted(options.items()))
            yield [replace(job, seed=seed, options=chosen) for seed in self.job.sweep]


def _scores(
    groups: Iterable[Sequence[Job]], known: Mapping[str, Record]
) -> dict[str, tuple[float, dict[str, Any]]]:
    """Mean validation score of every configuration; higher is better."""
    found = {}
    for group in groups:
        records = [known[job.key] for job in group]
        mean = math.fsum(score_of(record, "valid") for record in records) / len(records)
        options = dict(group[0].options)
        found[json.dumps(options)] = (metric_of(records[0]).sign * mean, options)
    return found
