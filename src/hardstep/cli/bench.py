"""`hardstep bench run` and `hardstep bench table`: suites of comparisons, recorded."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardstep._checks import check_name
from hardstep._files import check_writable
from hardstep.bench.axes import AXES
from hardstep.bench.queue import Progress, carry_out, check_jobs
from hardstep.bench.records import Record, append, check_appendable, load
from hardstep.bench.report import write_comparison, write_score
from hardstep.bench.runs import Job
from hardstep.bench.suite import read
from hardstep.bench.summary import name_of, summarize
from hardstep.cli.outputs import recorded
from hardstep.errors import DataError


@dataclass(frozen=True)
class Part:
    """Which part of a suite to run, by names with commas between; left out, all of it."""

    tasks: str | None = None
    methods: str | None = None
    match: str | None = None

    def of(self, jobs: Sequence[Job], suite: Path) -> list[Job]:
        """Its jobs.

        Raises:
            ConfigError: The suite has no such task, method or axis, or not together.
        """
        kept = list(jobs)
        for what, wanted in (("task", self.tasks), ("method", self.methods), ("axis", self.match)):
            if wanted is None:
                continue
            names = [name.strip() for name in wanted.split(",")]
            for name in names:
                check_name(
                    name, dict.fromkeys(_of(job, what) for job in kept), f"{what} of {suite}"
                )
            kept = [job for job in kept if _of(job, what) in names]
        return kept


def _of(job: Job, what: str) -> str:
    return {"task": job.task, "method": job.method, "axis": job.budget.axis}[what]


def run_suite(suite: Path, records: Path, processes: int, part: Part | None = None) -> int:
    """Run what a suite asks for and is not recorded yet; Ctrl-C keeps what is finished."""
    jobs = (part or Part()).of(read(suite), suite)
    check_writable(records, "--records")
    check_appendable(records)
    loaded = load(records)
    tell_skipped(loaded.skipped)
    progress = Progress(jobs, loaded.records)
    check_jobs(progress.unfinished)
    total = progress.total
    print(f"{total - progress.left} of {total} runs are recorded in {records}", file=sys.stderr)
    partial, done = records.with_suffix(".partial"), 0
    try:
        for job, record in carry_out(progress, partial, processes):
            append(records, record)
            job.forget(partial)
            done += 1
            left = progress.left
            print(
                f"[{total - left}/{total}] {_line(job, record)}, "
                f"{duration(progress.seconds_left(processes))} left",
                flush=True,
            )
    except KeyboardInterrupt:
        print(
            f"interrupted; {done} runs were recorded, the same command goes on with the rest",
            file=sys.stderr,
        )
        return 130
    if partial.is_dir() and not any(partial.iterdir()):
        partial.rmdir()
    return 0


def _line(job: Job, record: Record) -> str:
    kind = f"sweep {job.stage}, " if job.stage else ""
    variant = f", {job.study} {job.variant}" if job.study else ""
    split = "valid" if job.keeps_test_closed else "test"
    return (
        f"{kind}{job.task} {job.method}{variant} seed {job.seed}, {job.budget}: {split} "
        f"{write_score(record, split)}, {record['seconds']:.1f} s"
    )


def duration(seconds: float) -> str:
    """In the unit one would say it in."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def run_table(records: Path, reference: str) -> int:
    """Print a table per task, data and budget, and wins, ties and losses per axis."""
    loaded = recorded(records)
    tell_skipped(loaded.skipped)
    reported = [r for r in loaded.records if "test" in r and not r.get("stage")]
    if not reported:
        raise DataError(f"{records} has no run with a test score, so there is no table to print")
    names = sorted({name for run in reported for name in (name_of(run), run["method"])})
    check_name(reference, names, f"--reference in {records}")
    summary = summarize(reported, reference)
    for table in (*summary.tables, *summary.studies):
        title = ", ".join(filter(None, (table.task, table.data, table.study, str(table.budget))))
        print(f"{title}\n{write_comparison(table, reference)}\n")
    for axis in dict.fromkeys(table.budget.axis for table in summary.tables):
        counts = sum(summary.verdicts(axis).values(), Counter())
        shown = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("win", "tie", "loss"))
        print(f"{reference} at equal {AXES[axis].title}: {shown}, of {counts.total()} comparisons")
    return 0


def tell_skipped(skipped: list[str]) -> None:
    """Name the lines that could not be used."""
    for sentence in skipped:
        print(f"skipped: {sentence}", file=sys.stderr)
    if skipped:
        print(f"{len(skipped)} lines skipped; nothing was rewritten", file=sys.stderr)
