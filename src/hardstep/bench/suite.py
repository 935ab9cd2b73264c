"""Suites: a TOML file that says which runs there should be.

data = "digits"

[[run]]
tasks = ["snn", "int8"]
methods = ["polystep", "openai-es"]
seeds = [0, 1, 2]
match = "evals"          # or steps, time
budget = 50_000          # evaluations, steps or seconds; left out: the task's own steps
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

[options.snn.openai-es]  # instead of a sweep
sigma = 0.1
"""

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardstep import tasks
from hardstep.bench.cells import Cell
from hardstep.bench.methods import check_options
from hardstep.bench.protocol import Budget
from hardstep.errors import ConfigError, DataError
from hardstep.names import check

KEYS = ("data", "run", "options")
NEEDED = ("tasks", "methods", "seeds", "match")
RUN_KEYS = (*NEEDED, "budget", "tune", "tune_budget", "study", "variants", "data", "closed")


def read(path: Path | str) -> list[Cell]:
    """The cells of a suite, in the order of the file.

    Raises:
        DataError: The file is missing or not TOML.
        ConfigError: A key, task, method or option does not exist; the nearest is suggested.
    """
    try:
        config = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise DataError(f"suite {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"suite {path} is not TOML: {error}") from error
    for key in config:
        check(key, KEYS, f"key of {path}")
    data, options = config.get("data", "digits"), config.get("options", {})
    _check_all_options(options, data)
    cells = [c for table in config.get("run", []) for c in _expanded(table, data, options, path)]
    if not cells:
        raise ConfigError(f"suite {path} has no [[run]], so there is nothing to do")
    return cells


def _expanded(
    table: Mapping[str, Any], data: str, options: Mapping[str, Any], path: Path | str
) -> Iterator[Cell]:
    for key in table:
        check(key, RUN_KEYS, f"key of a [[run]] in {path}")
    missing = [key for key in NEEDED if key not in table]
    if missing:
        raise ConfigError(f"a [[run]] of {path} lacks {missing[0]}")
    data = table.get("data", data)
    seeds, sweep = tuple(table["seeds"]), tuple(table.get("tune", ()))
    if set(seeds) & set(sweep):
        raise ConfigError(
            f"a [[run]] of {path} tunes on seed {min(set(seeds) & set(sweep))} and reports it; "
            "choose other seeds for tune"
        )
    variants = table.get("variants", {"": {}})
    for name, method, variant in itertools.product(table["tasks"], table["methods"], variants):
        task = tasks.find(name, data)
        chosen = {**options.get(name, {}).get(method, {}), **variants[variant]}
        check_options(method, chosen)
        budget = Budget(table["match"], float(table.get("budget", task.steps)))
        yield Cell(
            task.name,  # as records have it: a task may be written in several ways
            task.data_name,
            method,
            budget,
            seeds,
            tuple(sorted(chosen.items())),
            sweep=() if chosen else sweep,
            sweep_amount=float(table.get("tune_budget", budget.amount)),
            study=table.get("study", ""),
            variant=variant,
            closed=table.get("closed", False),
        )


def _check_all_options(options: Mapping[str, Any], data: str) -> None:
    for task, methods in options.items():
        tasks.find(task, data)
        for method, chosen in methods.items():
            check_options(method, chosen)
