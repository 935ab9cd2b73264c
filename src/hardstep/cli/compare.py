"""`hardstep compare`: methods on a task, at equal steps, evaluations or time."""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live

from hardstep import tasks
from hardstep._checks import MOST, check_name
from hardstep._files import check_writable, provenance
from hardstep.bench.axes import Budget, budget_of
from hardstep.bench.methods import METHODS, check_axis, check_method, usual_options
from hardstep.bench.options import WORDS
from hardstep.bench.records import Record, append, check_appendable
from hardstep.bench.report import write_comparison
from hardstep.bench.runs import Job, run_job
from hardstep.bench.summary import summarize
from hardstep.cli.compare_view import Curves, LiveTable
from hardstep.cli.options import CompareOptions
from hardstep.cli.output import print
from hardstep.errors import ConfigError
from hardstep.tasks import Task
from hardstep.tasks.dry_run import try_task
from hardstep.tasks.files import is_address

FRUGAL = (
    "polystep took cheap steps (presets.frugal): the task's own are made for more evaluations; "
    "--option polystep.preset=task takes them all the same"
)


def run_compare(options: CompareOptions) -> int:
    """Run every method with every seed, showing the table as it grows."""
    methods = _parse_methods(options.methods)
    task = tasks.find(options.task, options.data)
    budget = budget_of(task, options.match, options.budget)
    check_axis(task, budget.axis)
    chosen = parse_options(options.options, methods)
    for method in methods:
        check_method(task, method, chosen.get(method, {}))
    command = _format_command(task, methods, budget, options)
    curves = Curves(task, options.match, command, options.picture)
    _check_files(options, curves)
    try_task(task, seed=0)
    usual = {method: usual_options(task, method, budget) for method in methods}
    given = {method: usual[method] | chosen.get(method, {}) for method in methods}
    jobs = [
        Job(task.name, task.data_name, method, seed, budget, tuple(sorted(given[method].items())))
        for seed in range(options.seeds)
        for method in methods
    ]
    found = _run_all(jobs, task, options)
    if options.json:
        print(json.dumps(found))
    elif found:
        reference = _choose_reference(found, methods)
        (table,) = summarize(found, reference).tables
        print(f"{task.title}, budget {budget}")
        print(write_comparison(table, reference))
        if usual.get("polystep", {}).keys() - chosen.get("polystep", {}):
            print(FRUGAL)
    if found and not options.no_picture:
        curves.draw(found, len(jobs))
    if len(found) < len(jobs):
        kept = f", recorded in {options.records}" if options.records else ""
        print(f"interrupted after {len(found)} runs{kept}", file=sys.stderr)
        return 130
    return 0


def _parse_methods(names: str) -> list[str]:
    methods = [name.strip() for name in names.split(",")]
    for name in methods:
        check_name(name, METHODS, "method")
        if methods.count(name) > 1:
            raise ConfigError(f"--methods has {name} {methods.count(name)} times; name it once")
    return methods


def _format_command(task: Task, methods: list[str], budget: Budget, options: CompareOptions) -> str:
    """What makes the comparison, with every number that decides it."""
    data = [] if is_address(task.name) else ["--data", task.data_name]
    parts = ["hardstep", "compare", task.name, *data, "--methods", ",".join(methods)]
    parts += ["--match", budget.axis, "--budget", f"{budget.amount:.12g}"]
    parts += ["--seeds", str(options.seeds)]
    return shlex.join(parts + [part for item in options.options for part in ("--option", item)])


def _check_files(options: CompareOptions, curves: Curves) -> None:
    if options.records is not None:
        check_writable(options.records, "--records")
        check_appendable(options.records)
    if options.no_picture and options.picture is not None:
        raise ConfigError(f"--picture {options.picture} and --no-picture contradict each other")
    if not options.no_picture:
        curves.check()


def _run_all(jobs: Sequence[Job], task: Task, options: CompareOptions) -> list[Record]:
    """Every run; fewer if Ctrl-C comes between."""
    found: list[Record] = []
    view = LiveTable(len(jobs), Console(stderr=True))
    with Live(view, console=view.console, transient=True, refresh_per_second=2):
        for job in jobs:
            view.begin(job)
            try:
                record = run_job(job, task=task, watching=[view])
            except KeyboardInterrupt:
                return found
            found.append(record)
            view.add(record)
            if options.records is not None:
                append(options.records, record | provenance())
    return found


def _choose_reference(found: list[Record], methods: list[str]) -> str:
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
        check_name(method, methods, "method of this comparison")
        chosen.setdefault(method, {})[option] = _parse_value(method, option, value)
    return chosen


def _parse_value(method: str, option: str, value: str) -> Any:
    if method == "polystep" and option in WORDS:
        return value
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"--option {method}.{option} takes a number, got {value!r}") from None
    return int(number) if number.is_integer() and abs(number) < MOST else number
