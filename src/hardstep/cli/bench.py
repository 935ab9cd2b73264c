"""`hardstep bench run` and `hardstep bench table`: suites of comparisons, recorded."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hardstep._checks import check_name
from hardstep._files import check_writable
from hardstep.bench.budgets import shown_amount
from hardstep.bench.cells import Cell, Job
from hardstep.bench.records import Record, append, load
from hardstep.bench.report.runs import sort_out
from hardstep.bench.running import Progress, carry_out, rehearse
from hardstep.bench.suite import read
from hardstep.bench.summary import (
    AXIS_NAMES,
    Group,
    groups,
    name_of,
    shown_score,
    summarize,
    tally,
    text,
)
from hardstep.cli.files import list_skipped, read_records
from hardstep.cli.options import SuiteOptions, TableOptions
from hardstep.errors import DataError


def run_suite(options: SuiteOptions) -> int:
    """Run what is not recorded yet; Ctrl-C keeps what is finished."""
    cells = _select(read(options.suite), options)
    records = options.records or options.suite.with_suffix(".jsonl")
    check_writable(records, "--records")
    loaded = load(records)
    list_skipped(loaded.skipped)
    progress = Progress(cells, loaded.records)
    rehearse(progress.unfinished)
    total = progress.total
    print(f"{total - progress.left} of {total} runs are recorded in {records}", file=sys.stderr)
    partial, done = records.with_suffix(".partial"), 0
    try:
        for job, record in carry_out(progress, partial, options.processes):
            append(records, record)
            job.forget(partial)
            done += 1
            left = format_duration(progress.seconds_left(options.processes))
            print(
                f"[{total - progress.left}/{total}] {_describe(job, record)}, {left} left",
                flush=True,
            )
    except KeyboardInterrupt:
        print(
            f"interrupted; {done} runs were recorded, the same command continues with the rest",
            file=sys.stderr,
        )
        return 130
    if partial.is_dir() and not any(partial.iterdir()):
        partial.rmdir()
    return 0


def _select(cells: Sequence[Cell], options: SuiteOptions) -> list[Cell]:
    """The cells of the tasks, methods and axes asked for, by names with commas between.

    Raises:
        ConfigError: The suite has no such task, method or axis, or not together.
    """
    kept = list(cells)
    parts: dict[str, tuple[str | None, Callable[[Cell], str]]] = {
        "task": (options.tasks, lambda cell: cell.task),
        "method": (options.methods, lambda cell: cell.method),
        "axis": (options.match, lambda cell: cell.budget.axis),
    }
    for what, (wanted, name_in) in parts.items():
        if wanted is None:
            continue
        names = [name.strip() for name in wanted.split(",")]
        for name in names:
            check_name(name, dict.fromkeys(map(name_in, kept)), f"{what} of {options.suite}")
        kept = [cell for cell in kept if name_in(cell) in names]
    return kept


def _describe(job: Job, record: Record) -> str:
    kind = f"sweep {job.stage}, " if job.stage else ""
    variant = f", {job.study} {job.variant}" if job.study else ""
    split = "valid" if job.keeps_test_closed else "test"
    budget = f"{shown_amount(job.budget.amount)} {AXIS_NAMES[job.budget.axis]}"
    return (
        f"{kind}{job.task} {job.method}{variant} seed {job.seed}, {budget}: {split} "
        f"{shown_score(record, split)}, {record['seconds']:.1f} s"
    )


def format_duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever one would say."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def run_table(options: TableOptions) -> int:
    """Print a table per task, data and budget, and wins, ties and losses per axis."""
    reference = options.reference
    loaded = read_records(options.records)
    usable = sort_out(loaded.records)
    list_skipped([*loaded.skipped, *usable.skipped])
    found = groups(run.record for run in (*usable.comparisons, *usable.ablations))
    _check_reference(found, reference, options.records)
    summaries = [(group, summarize(runs, reference)) for group, runs in found.items()]
    for group, summary in summaries:
        name = AXIS_NAMES[group.axis]
        print(f"{group.title}, {shown_amount(group.amount)} {name}\n{text(summary, name)}\n")
    for axis, counts in tally(summaries).items():
        shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        print(
            f"{reference} at equal {AXIS_NAMES[axis]}: {shown}, of {sum(counts.values())} "
            "comparisons"
        )
    return 0


def _check_reference(
    found: Mapping[Group, Sequence[Record]], reference: str, records: Path
) -> None:
    """Refuse a reference that no run is of; a method whose runs are all of studies will do."""
    runs = [record for group in found.values() for record in group]
    if not runs:
        raise DataError(f"{records} has no run with a test score, so there is no table to print")
    names = sorted({name for record in runs for name in (name_of(record), record["method"])})
    check_name(reference, names, f"--reference in {records}")
