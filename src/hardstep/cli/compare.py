"""`hardstep compare`: methods on a task, at equal steps, evaluations or time."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from hardstep import tasks
from hardstep.bench.methods import METHODS
from hardstep.bench.protocol import Budget, Trial, run_trial
from hardstep.bench.records import Record, append
from hardstep.bench.summary import AXIS_NAMES, summarize, text
from hardstep.bench.variants import WORDS
from hardstep.cli import results
from hardstep.errors import ConfigError
from hardstep.names import check

AMOUNTS = {"evals": 50_000.0, "time": 20.0}  # unless --budget is given; steps are the task's


@dataclass(frozen=True)
class CompareOptions:
    """The arguments of the command."""

    task: str
    data: str = "digits"
    methods: str = "polystep,openai-es,cma-es"
    match: str = "evals"
    budget: float | None = None
    seeds: int = 3
    records: Path | None = None
    picture: Path | None = None
    json: bool = False
    options: list[str] = field(default_factory=list)  # method.option=value


def run_compare(options: CompareOptions) -> int:
    """Run every method with every seed, showing the table as it grows."""
    methods = [name.strip() for name in options.methods.split(",")]
    for name in methods:
        check(name, METHODS, "method")
    task = tasks.find(options.task, options.data)
    budget = budget_of(task, options.match, options.budget)
    found = _all_runs(task, methods, budget, options)
    if options.json:
        print(json.dumps(found))
    elif found:
        name = AXIS_NAMES[options.match]
        print(f"{task.title}, {task.data_name}, budget {budget.amount:,.0f} {name}")
        print(text(summarize(found, _reference(found, methods)), name))
    if options.picture is not None and found:
        _draw(options.picture, task.title, found)
    if len(found) < len(methods) * options.seeds:
        kept = f", recorded in {options.records}" if options.records else ""
        print(f"interrupted after {len(found)} runs{kept}", file=sys.stderr)
        return 130
    return 0


def _all_runs(
    task: tasks.Task, methods: list[str], budget: Budget, options: CompareOptions
) -> list[Record]:
    """Every run; fewer if Ctrl-C comes between."""
    chosen = parse_options(options.options, methods)
    found: list[Record] = []
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        for seed in range(options.seeds):
            for method in methods:
                live.update(_progress(found, methods, method, seed, options), refresh=True)
                trial = Trial(task, method, seed, budget, chosen.get(method, {}))
                try:
                    record = run_trial(trial)
                except KeyboardInterrupt:
                    return found
                found.append(record)
                if options.records is not None:
                    append(options.records, record | results.provenance())
    return found


def budget_of(task: tasks.Task, axis: str, amount: float | None) -> Budget:
    """What was asked for; without an amount the task's steps, or what is usual on the axis."""
    check(axis, AXIS_NAMES, "axis")
    amount = AMOUNTS.get(axis, task.steps) if amount is None else amount
    return Budget(axis, amount)  # type: ignore[arg-type]  # checked above


def _progress(
    found: list[Record], methods: list[str], method: str, seed: int, options: CompareOptions
) -> str:
    done = f"{len(found)} of {len(methods) * options.seeds} runs; now {method}, seed {seed}"
    if not found:
        return done
    summary = summarize(found, _reference(found, methods))
    return f"{text(summary, AXIS_NAMES[options.match])}\n{done}"


def _reference(found: list[Record], methods: list[str]) -> str:
    """The first method asked for, or the first that has run."""
    known = {record["method"] for record in found}
    return methods[0] if methods[0] in known else str(found[0]["method"])


def parse_options(given: list[str], methods: list[str]) -> dict[str, dict[str, Any]]:
    """From `openai-es.sigma=0.1` to options by method; words stay words."""
    chosen: dict[str, dict[str, Any]] = {}
    for item in given:
        name, equals, value = item.partition("=")
        method, dot, option = name.partition(".")
        if not equals or not dot:
            raise ConfigError(f"--option takes METHOD.NAME=VALUE, got {item!r}")
        check(method, methods, "method of this comparison")
        chosen.setdefault(method, {})[option] = _value(method, option, value)
    return chosen


def _value(method: str, option: str, value: str) -> Any:
    if method == "polystep" and option in WORDS:
        return value
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"--option {method}.{option} takes a number, got {value!r}") from None
    return int(number) if number.is_integer() else number


def _draw(path: Path, title: str, found: list[Record]) -> None:
    try:
        from hardstep.bench.pictures import draw_curves
    except ImportError:
        print("no picture: matplotlib is missing, pip install 'hardstep[plot]'", file=sys.stderr)
        return
    draw_curves(path, title, found)
    print(f"curves on three axes: {path}", file=sys.stderr)
