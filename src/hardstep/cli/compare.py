"""`hardstep compare`: methods on a task, at equal steps, evaluations or time."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from hardstep import tasks
from hardstep.bench.methods import METHODS, check
from hardstep.bench.protocol import Budget, run_method
from hardstep.bench.records import Record, append
from hardstep.bench.summary import summarize, text
from hardstep.cli import results
from hardstep.errors import ConfigError

AMOUNTS = {"evals": 50_000.0, "time": 20.0}  # unless --budget is given; steps are the task's
NAMES = {"steps": "steps", "evals": "evaluations", "time": "wall-clock time"}


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
    chosen = parse_options(options.options, methods)
    found: list[Record] = []
    console = Console(stderr=True)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for seed in range(options.seeds):
            for method in methods:
                live.update(_progress(found, methods, method, seed, options), refresh=True)
                record = run_method(
                    task, options.data, method, seed, budget, chosen.get(method, {})
                )
                found.append(record)
                if options.records is not None:
                    append(options.records, record | results.provenance())
    summary = summarize(found, methods[0])
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{task.title}, {options.data}, budget {budget.amount:,.0f} {NAMES[options.match]}")
        print(text(summary, NAMES[options.match]))
    if options.picture is not None:
        _draw(options.picture, task.title, found)
    return 0


def budget_of(task: tasks.Task, axis: str, amount: float | None) -> Budget:
    """What was asked for; without an amount the task's steps, or what is usual on the axis."""
    check(axis, NAMES, "axis")
    amount = AMOUNTS.get(axis, task.steps) if amount is None else amount
    return Budget(axis, amount)  # type: ignore[arg-type]  # checked above


def _progress(
    found: list[Record], methods: list[str], method: str, seed: int, options: CompareOptions
) -> str:
    done = f"{len(found)} of {len(methods) * options.seeds} runs; now {method}, seed {seed}"
    if not found:
        return done
    known = {record["method"] for record in found}
    reference = methods[0] if methods[0] in known else found[0]["method"]
    return f"{text(summarize(found, reference), NAMES[options.match])}\n{done}"


def parse_options(given: list[str], methods: list[str]) -> dict[str, dict[str, Any]]:
    """From `openai-es.sigma=0.1` to options by method."""
    chosen: dict[str, dict[str, Any]] = {}
    for item in given:
        name, equals, value = item.partition("=")
        method, dot, option = name.partition(".")
        if not equals or not dot:
            raise ConfigError(f"--option takes METHOD.NAME=VALUE, got {item!r}")
        check(method, tuple(methods), "method of this comparison")
        try:
            number = float(value)
        except ValueError:
            raise ConfigError(f"--option {name} takes a number, got {value!r}") from None
        chosen.setdefault(method, {})[option] = int(number) if number.is_integer() else number
    return chosen


def _draw(path: Path, title: str, found: list[Record]) -> None:
    try:
        from hardstep.bench.pictures import draw_curves
    except ImportError:
        print("no picture: matplotlib is missing, pip install 'hardstep[plot]'", file=sys.stderr)
        return
    draw_curves(path, title, found)
    print(f"curves on three axes: {path}", file=sys.stderr)
