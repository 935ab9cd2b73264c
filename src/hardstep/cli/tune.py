"""`hardstep tune`: the two-stage sweep of a method on a task, judged on validation."""

import json
import sys
from typing import Any

from hardstep import tasks
from hardstep._checks import check_name
from hardstep._durations import format_duration
from hardstep._files import check_writable
from hardstep.bench.axes import budget_of
from hardstep.bench.methods import METHODS
from hardstep.bench.progress import Progress
from hardstep.bench.queue import carry_out, check_jobs
from hardstep.bench.records import Record, append, check_appendable, load
from hardstep.bench.report import write_score
from hardstep.bench.runs import Job
from hardstep.bench.tuning import Sweep
from hardstep.cli.compare import parse_options
from hardstep.cli.files import list_skipped
from hardstep.cli.options import TuneOptions
from hardstep.cli.output import print


def run_tune(options: TuneOptions) -> int:
    """Try eighteen configurations and print them, then the best; recorded ones are not repeated."""
    check_name(options.method, METHODS, "method")
    task = tasks.find(options.task, options.data)
    budget = budget_of(task, options.match, options.budget)
    fixed = parse_options(options.options, [options.method]).get(options.method, {})
    seeds = tuple(range(options.first_seed, options.first_seed + options.seeds))
    job = Job(task.name, task.data_name, options.method, seeds[0], budget,
              tuple(sorted(fixed.items())), sweep=seeds, sweep_amount=budget.amount)  # fmt: skip
    check_jobs([job])
    if options.records is not None:
        check_writable(options.records, "--records")
        check_appendable(options.records)
    loaded = load(options.records) if options.records else None
    list_skipped(loaded.skipped if loaded else [])
    sweep = Sweep(job)
    progress = Progress([], loaded.records if loaded else [], [sweep])
    processes = progress.limit(options.processes)
    try:
        for run, record in carry_out(progress, None, processes, options.ray):
            if options.records is not None:
                append(options.records, record)
            if not options.json:
                print(_describe_run(run, record, progress.seconds_left()), flush=True)
    except KeyboardInterrupt:
        again = f"; the same command continues ({options.records})" if options.records else ""
        print(f"interrupted{again}", file=sys.stderr)
        return 130
    known = progress.known
    _report(dict(sweep.choose(known)), sweep.count_tried(known), options)
    return 0


def _describe_run(job: Job, record: Record, left: float) -> str:
    score = f"valid {write_score(record, 'valid'):>8}"
    said = f"stage {job.stage}  seed {job.seed}  {score}  {_describe(dict(job.options))}"
    return f"{said}  {format_duration(left)} left" if left else said


def _report(best: dict[str, Any], tried: int, options: TuneOptions) -> None:
    if options.json:
        print(json.dumps({"options": best, "tried": tried}))
        return
    print(f"best of {tried} runs on validation: {_describe(best)}")
    print(f"compare with: {_format_command(options, best)}")


def _format_command(options: TuneOptions, best: dict[str, Any]) -> str:
    """The comparison that uses what was found, at the same budget."""
    methods = ",".join(dict.fromkeys(("polystep", options.method)))
    parts = [f"hardstep compare {options.task} --methods {methods} --match {options.match}"]
    if options.data != tasks.DEFAULT_DATA:
        parts.append(f"--data {options.data}")
    if options.budget is not None:
        parts.append(f"--budget {options.budget:g}")
    parts += [f"--option {options.method}.{name}={_format(v, 6)}" for name, v in best.items()]
    return " ".join(parts)


def _describe(options: dict[str, Any]) -> str:
    """A configuration in a few words."""
    return ", ".join(f"{name} {_format(value, 4)}" for name, value in options.items())


def _format(value: Any, digits: int) -> str:
    """A number in so many digits, a name as it is."""
    return f"{value:.{digits}g}" if isinstance(value, int | float) else str(value)
