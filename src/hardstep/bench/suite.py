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
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardstep import tasks
from hardstep.bench import kinds
from hardstep.bench.budgets import budget_of, usual_options
from hardstep.bench.cells import Cell
from hardstep.bench.methods import check_options
from hardstep.errors import ConfigError, DataError

KEYS = {"data": kinds.NAME, "run": kinds.RUNS, "options": kinds.OPTIONS}
NEEDED = {
    "tasks": kinds.NAMES,
    "methods": kinds.NAMES,
    "seeds": kinds.SEEDS,
    "match": kinds.NAME,
}
RUN_KEYS = NEEDED | {
    "budget": kinds.AMOUNT,
    "tune": kinds.SWEEP,
    "tune_budget": kinds.AMOUNT,
    "study": kinds.NAME,
    "variants": kinds.VARIANTS,
    "data": kinds.NAME,
    "closed": kinds.TRUTH,
}
NEEDS = {"tune_budget": "tune", "variants": "study"}  # else nothing or the wrong table shows them
Options = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by task and method


def read(path: Path | str) -> list[Cell]:
    """The cells of a suite, in the order of the file.

    Raises:
        DataError: The file is missing or not TOML.
        ConfigError: A key, task, method or option does not exist, and the nearest is suggested; a
            value is not of its kind; or a seed is tuned on and reported.
    """
    config = _parsed(path)
    kinds.check_kinds(config, KEYS, str(path))
    data = config.get("data", tasks.DEFAULT_DATA)
    options = _by_own_name(config.get("options", {}), data, path)
    cells = [c for table in config.get("run", []) for c in _expanded(table, data, options, path)]
    if not cells:
        raise ConfigError(f"suite {path} has no [[run]], so there is nothing to do")
    _check_seeds(cells, path)
    return cells


def _parsed(path: Path | str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"suite {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"suite {path} is not UTF-8 text, at byte {error.start}; save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"suite {path} is not TOML: {error}") from error


def _by_own_name(given: Options, data: str, path: Path | str) -> Options:
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


def _expanded(
    table: Mapping[str, Any], data: str, options: Options, path: Path | str
) -> Iterator[Cell]:
    kinds.check_kinds(table, RUN_KEYS, f"a [[run]] in {path}")
    missing = [key for key in NEEDED if key not in table]
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
        yield Cell(
            task.name,  # as records have it: a task may be written in several ways
            task.data_name,
            method,
            budget,
            tuple(table["seeds"]),
            tuple(sorted(chosen.items())),
            sweep=() if given else tuple(table.get("tune", ())),
            sweep_amount=swept.amount,
            study=table.get("study", ""),
            variant=variant,
            closed=table.get("closed", False),
        )


def _check_seeds(cells: Sequence[Cell], path: Path | str) -> None:
    """Refuse a seed that chooses a method's settings in one [[run]] and is reported in any."""
    reported: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for cell in cells:
        if not cell.closed:
            reported[_compared(cell)].update(cell.seeds)
    for cell in cells:
        both = reported[_compared(cell)].intersection(cell.sweep)
        if both:
            raise ConfigError(
                f"{path} tunes on seed {min(both)} and reports it, both with {cell.method} on "
                f"{cell.task} at equal {cell.budget.axis}; choose other seeds for tune"
            )


def _compared(cell: Cell) -> tuple[str, ...]:
    """What settings are chosen for."""
    return (cell.data, cell.task, cell.method, cell.budget.axis)
