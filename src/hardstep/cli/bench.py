"""`hardstep bench run` and `hardstep bench table`: suites of comparisons, recorded."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence

from hardstep._checks import check_name
from hardstep._durations import format_duration
from hardstep._files import check_writable
from hardstep._text import to_line
from hardstep.bench.axes import AXES
from hardstep.bench.progress import Progress
from hardstep.bench.queue import carry_out, check_jobs
from hardstep.bench.records import Record, append, check_appendable, load
from hardstep.bench.report import write_comparison, write_score
from hardstep.bench.runs import Job
from hardstep.bench.suite import read
from hardstep.bench.summary import name_of, summarize
from hardstep.cli.files import list_skipped, read_records
from hardstep.cli.options import SuiteOptions, TableOptions
from hardstep.cli.output import print
from hardstep.errors import DataError


def run_suite(options: SuiteOptions) -> int:
    """Run what is not recorded yet; Ctrl-C keeps what is finished."""
    jobs = _select(read(options.suite), options)
    records = options.records or options.suite.with_suffix(".jsonl")
    check_writable(records, "--records")
    check_appendable(records)
    loaded = load(records)
    list_skipped(loaded.skipped)
    progress = Progress(jobs, loaded.records)
    check_jobs(progress.unfinished)
    total = progress.total
    print(f"{total - progress.left} of {total} runs are recorded in {records}", file=sys.stderr)
    partial, done = records.with_suffix(".partial"), 0
    processes = progress.limit(options.processes)
    try:
        for job, record in carry_out(progress, partial, processes, options.ray):
            append(records, record)
            job.forget(partial)
            done += 1
            left = format_duration(progress.seconds_left())
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


def _select(jobs: Sequence[Job], options: SuiteOptions) -> list[Job]:
    """The jobs of the tasks, methods and axes asked for, by names with commas between.

    Raises:
        ConfigError: The suite has no such task, method or axis, or not together.
    """
    kept = list(jobs)
    parts: dict[str, tuple[str | None, Callable[[Job], str]]] = {
        "task": (options.tasks, lambda job: job.task),
        "method": (options.methods, lambda job: job.method),
        "axis": (options.match, lambda job: job.budget.axis),
    }
    for what, (wanted, name_in) in parts.items():
        if wanted is None:
            continue
        names = [name.strip() for name in wanted.split(",")]
        known = dict.fromkeys(map(name_in, kept))
        for name in names:
            check_name(name, known, f"{what} of {options.suite}")
        kept = [job for job in kept if name_in(job) in names]
    return kept


def _describe(job: Job, record: Record) -> str:
    kind = f"sweep {job.stage}, " if job.stage else ""
    variant = f", {job.study} {job.variant}" if job.study else ""
    split = "valid" if job.keeps_test_closed else "test"
    return to_line(
        f"{kind}{job.task} {job.method}{variant} seed {job.seed}, {job.budget}: {split} "
        f"{write_score(record, split)}, {record['seconds']:.1f} s"
    )


def run_table(options: TableOptions) -> int:
    """Print a table per task, data and budget, and wins, ties and losses per axis."""
    reference = options.reference
    loaded = read_records(options.records)
    list_skipped(loaded.skipped)
    reported = [run for run in loaded.records if "test" in run and not run.get("stage")]
    if not reported:
        raise DataError(
            f"{options.records} has no run with a test score, so there is no table to print"
        )
    names = sorted({name for run in reported for name in (name_of(run), run["method"])})
    check_name(reference, names, f"--reference in {options.records}")
    summary = summarize(reported, reference)
    for table in (*summary.tables, *summary.studies):
        title = ", ".join(filter(None, (table.task, table.data, table.study, str(table.budget))))
        print(f"{to_line(title)}\n{write_comparison(table, reference)}\n")
    for axis in dict.fromkeys(table.budget.axis for table in summary.tables):
        counts = sum(summary.verdicts(axis).values(), Counter())
        shown = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("win", "tie", "loss"))
        print(f"{reference} at equal {AXES[axis].title}: {shown}, of {counts.total()} comparisons")
    return 0
