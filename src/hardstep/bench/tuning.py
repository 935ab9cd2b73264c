"""The sweep every method gets: nine configurations, then nine around the best of them.

Each configuration has the same budget and is judged on validation, averaged over the tuning seeds.
A stage is a grid of 3 × 3 values of a method's two settings (nine values if it has one), in equal
ratios; the second stage is recentred on the first's best with the square root of the ratios.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hardstep.bench.protocol import Budget, train
from hardstep.bench.records import Record
from hardstep.tasks import Task


class Setting(NamedTuple):
    """A setting to tune: where to begin, and the ratio between neighbours of the first stage."""

    name: str
    centre: float
    ratio: float
    whole: bool = False  # a whole number, even where a method asks for that


SETTINGS: dict[str, tuple[Setting, ...]] = {
    "polystep": (Setting("step_radius", 0.25, 2.0), Setting("probe_radius", 2.0, 2.0)),
    "openai-es": (Setting("sigma", 0.1, 3.0), Setting("learning_rate", 0.05, 3.0)),
    "cma-es": (Setting("sigma", 0.1, 3.0), Setting("population", 32, 2.0, whole=True)),
    "eggroll": (Setting("sigma", 0.05, 3.0), Setting("learning_rate", 0.1, 3.0)),
    "mezo": (Setting("learning_rate", 1e-3, 10.0), Setting("mu", 1e-2, 3.0)),
    "spsa": (Setting("a", 0.1, 10.0), Setting("c", 0.1, 3.0)),
    "random": (Setting("sigma", 0.05, 3.0), Setting("population", 32, 2.0, whole=True)),
    "adam": (Setting("learning_rate", 3e-3, 2.0),),
}


@dataclass(frozen=True)
class Tried:
    """One configuration and its mean validation score."""

    stage: int
    options: dict[str, float]
    valid: float
    records: tuple[Record, ...]


def grid(
    settings: Sequence[Setting], centres: Mapping[str, float], stage: int
) -> Iterator[dict[str, Any]]:
    """Nine configurations around the centres."""
    side = 9 if len(settings) == 1 else 3
    exponents = [k - side // 2 for k in range(side)]
    for chosen in itertools.product(exponents, repeat=len(settings)):
        found: dict[str, Any] = {}
        for setting, exponent in zip(settings, chosen, strict=True):
            ratio = setting.ratio if stage == 1 else math.sqrt(setting.ratio)
            value = centres[setting.name] * ratio**exponent
            found[setting.name] = max(2, 2 * round(value / 2)) if setting.whole else value
        yield found


def tune(
    task: Task,
    data: str,
    method: str,
    budget: Budget,
    seeds: Sequence[int],
    watch: Callable[[Tried], None] = lambda tried: None,
) -> list[Tried]:
    """Both stages; the best configuration first.

    Args:
        task: The task.
        data: Its data set's name, for records.
        method: The method.
        budget: Of every configuration and seed.
        seeds: Averaged over; not those of any reported run.
        watch: Called with every configuration tried.
    """
    settings = SETTINGS[method]
    centres = {setting.name: setting.centre for setting in settings}
    tried: list[Tried] = []
    for stage in (1, 2):
        for options in grid(settings, centres, stage):
            runs = tuple(train(task, data, method, s, budget, options).record for s in seeds)
            score = math.fsum(run["valid"] for run in runs) / len(runs)
            found = Tried(stage, options, score, runs)
            tried.append(found)
            watch(found)
        best = max(tried, key=lambda t: t.valid)
        centres = dict(best.options)
    return sorted(tried, key=lambda t: -t.valid)
