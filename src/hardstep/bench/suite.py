"""Suites: a TOML file that says which runs there should be.

data = "digits"

[[run]]
tasks = ["snn", "int8"]
methods = ["polystep", "openai-es"]
seeds = [0, 1, 2]
match = "evals"          # or steps, time
budget = 50_000          # evaluations, steps or seconds; left out: as in `hardstep compare`
tune = [100]             # sweep each method first, with these seeds; left out: no sweep
tune_budget = 50_000     # of every configuration of the sweep; left out: the budget

[[run]]
study = "solver"         # an ablation: every variant is a set of options
tasks = ["snn"]
methods = ["polystep"]
seeds = [0, 1, 2]
match = "steps"
closed = true            # for choosing settings: the test set is not read, validation is shown
[run.variants]
softmax = {}
greedy = { solver = "greedy" }

[[run]]
study = "presets"        # with tune, every variant is swept, its own options left as they are
tasks = ["snn"]
methods = ["polystep"]
seeds = [0, 1, 2]
match = "evals"
tune = [100]
[run.variants]
frugal = { preset = "frugal" }
sketch = { preset = "sketch" }

[options.snn.openai-es]  # instead of a sweep
sigma = 0.1
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hardstep import tasks
from hardstep._checks import LARGEST, check_name, is_number, is_whole
from hardstep._reading import parse_toml, read_text
from hardstep.bench.axes import budget_of
from hardstep.bench.methods import check_options, usual_options
from hardstep.bench.runs import Job
from hardstep.errors import ConfigError, DataError

Fits = Callable[[Any], bool]


class Kind(NamedTuple):
    """What kind of value a key takes: whether one is of it, and what to write instead if not."""

    fits: Fits
    wanted: str


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_amount(value: Any) -> bool:
    return is_number(value) and 0 < value <= LARGEST


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _table_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, Mapping) and all(map(fits, value.values()))


def _are_names(value: Any) -> bool:
    return value != [] and _list_of(_is_text)(value)


def _are_seeds(value: Any) -> bool:
    return value != [] and _list_of(is_whole)(value) and len(set(value)) == len(value)


NAME = Kind(_is_text, "a name in quotes")
NAMES = Kind(_are_names, 'a list of names such as ["snn", "int8"]')
SEEDS = Kind(_are_seeds, "a list of different whole numbers such as [0, 1, 2]")
SWEEP = Kind(_list_of(is_whole), "a list of whole numbers such as [100]; [] for no sweep")
AMOUNT = Kind(_is_amount, "a number > 0 and finite")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
RUNS = Kind(_list_of(_is_table), "tables written as [[run]]")
VARIANTS = Kind(_table_of(_is_table), 'tables such as greedy = { solver = "greedy" }')
OPTIONS = Kind(_table_of(_table_of(_is_table)), "tables such as [options.snn.mezo]")
KEYS = {"data": NAME, "run": RUNS, "options": OPTIONS}
REQUIRED = {"tasks": NAMES, "methods": NAMES, "seeds": SEEDS, "match": NAME}
RUN_KEYS = REQUIRED | {
    "budget": AMOUNT,
    "tune": SWEEP,
    "tune_budget": AMOUNT,
    "study": NAME,
    "variants": VARIANTS,
    "data": NAME,
    "closed": FLAG,
}
NEEDS = {"tune_budget": "tune", "variants": "study"}  # else nothing or the wrong table shows them
Options = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by task and method


def read(path: Path | str) -> list[Job]:
    """The runs a suite reports, in the order of the file; those it tunes name their sweep.

    Raises:
        DataError: The file is missing or not TOML.
        ConfigError: A key, task, method or option does not exist, and the nearest is suggested; a
            value is not of its kind; or a seed is tuned on and reported.
    """
    config = _parse(path)
    _check_kinds(config, KEYS, str(path))
    data = config.get("data", tasks.DEFAULT_DATA)
    options = _by_task(config.get("options", {}), data, path)
    jobs = [job for table in config.get("run", []) for job in _expand(table, data, options, path)]
    if not jobs:
        raise ConfigError(f"suite {path} has no [[run]], so there is nothing to do")
    _check_seeds(jobs, path)
    return jobs


def _check_kinds(table: Mapping[str, Any], kinds: Mapping[str, Kind], where: str) -> None:
    """Refuse keys that do not exist, and values that are not of their kind."""
    for key, value in table.items():
        check_name(key, kinds, f"key of {where}")
        if not kinds[key].fits(value):
            raise ConfigError(f"{key} of {where} must be {kinds[key].wanted}, got {value!r}")


def _parse(path: Path | str) -> dict[str, Any]:
    text = read_text(Path(path), "suite")
    try:
        return parse_toml(text)
    except ValueError as error:
        raise DataError(f"suite {path} is not TOML that can be used: {error}") from error


def _by_task(given: Options, data: str, path: Path | str) -> Options:
    """Options by the task's own name, however the file calls it."""
    found: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    for task, methods in given.items():
        for method, chosen in methods.items():
            check_options(method, chosen)
        name = tasks.find(task, data).name
        if name in found:
            raise ConfigError(
                f"{path} has options for {name!r} twice, under two names of it, the second "
                f"{task!r}; write them under one"
            )
        found[name] = methods
    return found


def _expand(
    table: Mapping[str, Any], data: str, options: Options, path: Path | str
) -> Iterator[Job]:
    _check_kinds(table, RUN_KEYS, f"a [[run]] in {path}")
    missing = [key for key in REQUIRED if key not in table]
    if missing:
        raise ConfigError(f"a [[run]] of {path} lacks {missing[0]}")
    for key, other in NEEDS.items():
        if key in table and other not in table:
            raise ConfigError(
                f"a [[run]] of {path} has {key} without {other}; give both, or neither"
            )
    variants = table.get("variants", {"": {}})
    for name, method, variant in itertools.product(table["tasks"], table["methods"], variants):
        task = tasks.find(name, table.get("data", data))
        given = options.get(task.name, {}).get(method, {})
        chosen = {**given, **variants[variant]}
        check_options(method, chosen)
        budget = budget_of(task, table["match"], table.get("budget"))
        if not (chosen or "tune" in table or "variants" in table):  # variants differ in one thing
            chosen = usual_options(task, method, budget)
        swept = budget_of(task, table["match"], table.get("tune_budget", budget.amount))
        for seed in table["seeds"]:
            yield Job(
                task.name,  # as records have it: a task may be written in several ways
                task.data_name,
                method,
                seed,
                budget,
                tuple(sorted(chosen.items())),
                study=table.get("study", ""),
                variant=variant,
                closed=table.get("closed", False),
                sweep=() if given else tuple(table.get("tune", ())),
                sweep_amount=swept.amount,
            )


def _check_seeds(jobs: Sequence[Job], path: Path | str) -> None:
    """Refuse a seed that chooses a method's settings in one [[run]] and is reported in any."""
    reported: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for job in jobs:
        if not job.closed:
            reported[_place(job)].add(job.seed)
    for job in jobs:
        both = reported[_place(job)].intersection(job.sweep)
        if both:
            raise ConfigError(
                f"{path} tunes on seed {min(both)} and reports it, both with {job.method} on "
                f"{job.task} at equal {job.budget.axis}; choose other seeds for tune"
            )


def _place(job: Job) -> tuple[str, ...]:
    """What settings are chosen for."""
    return (job.data, job.task, job.method, job.budget.axis)
