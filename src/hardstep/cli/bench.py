"""`hardstep bench run` and `hardstep bench table`: suites of comparisons, recorded."""

import sys
import time
from collections import defaultdict
from pathlib import Path

from hardstep.bench.records import Record, append, load
from hardstep.bench.suite import Job, carry_out, read, remaining
from hardstep.bench.summary import summarize, text
from hardstep.cli import results
from hardstep.cli.compare import NAMES


def run_suite(suite: Path, records: Path, processes: int) -> int:
    """Run what a suite asks for and is not recorded yet; Ctrl-C keeps what is finished."""
    jobs = read(suite)
    loaded = load(records)
    _tell(loaded.skipped)
    todo = remaining(jobs, loaded.records)
    print(f"{len(jobs) - len(todo)} of {len(jobs)} runs are recorded in {records}", file=sys.stderr)
    began, done = time.perf_counter(), 0
    try:
        for job, record in carry_out(todo, processes):
            append(records, record | results.provenance())
            done += 1
            each = (time.perf_counter() - began) / done
            left = each * (len(todo) - done) / 60
            print(f"[{done}/{len(todo)}] {_line(job, record)}, {left:.0f} min left", flush=True)
    except KeyboardInterrupt:
        print(
            f"interrupted; {done} runs were recorded, the same command goes on with the rest",
            file=sys.stderr,
        )
        return 130
    return 0


def _line(job: Job, record: Record) -> str:
    return (
        f"{job.task} {job.method} seed {job.seed}, {job.amount:,.0f} {NAMES[job.axis]}: test "
        f"{100 * record['test']:.2f} %, {record['seconds']:.1f} s"
    )


def run_table(records: Path, reference: str) -> int:
    """Print a table per task, data and budget, and wins, ties and losses per axis."""
    loaded = load(records)
    _tell(loaded.skipped)
    groups: dict[tuple[str, str, str, float], list[Record]] = defaultdict(list)
    for record in loaded.records:
        if "test" in record and "budget" in record:
            budget = record["budget"]
            key = (record["task"], record["data"], budget["axis"], budget["amount"])
            groups[key].append(record)
    tally: dict[str, dict[str, int]] = {}
    for (task, data, axis, amount), found in sorted(groups.items()):
        summary = summarize(found, reference)
        print(f"{task}, {data}, {amount:,.0f} {NAMES[axis]}\n{text(summary, NAMES[axis])}\n")
        counts = tally.setdefault(axis, {"win": 0, "tie": 0, "loss": 0})
        for comparison in summary.against.values():
            counts[comparison.verdict] += 1
    for axis, counts in tally.items():
        shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        print(f"{reference} at equal {NAMES[axis]}: {shown}")
    return 0


def _tell(skipped: list[str]) -> None:
    for sentence in skipped:
        print(f"skipped: {sentence}", file=sys.stderr)
    if skipped:
        print(f"{len(skipped)} lines skipped; nothing was rewritten", file=sys.stderr)
