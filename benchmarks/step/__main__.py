"""Time one optimizer step of hardstep and of the authors' polystep, row by row.

    make bench-step                                      all rows that are not recorded yet
    make bench-step ARGS="--rows mlp,snn --repeats 1"    some rows, quickly
    make bench-step ARGS="--report"                      only the table and the chart

Each row appends one JSON line to benchmarks/results/bench-step.jsonl; a row recorded with the
same versions and the same sources of hardstep is skipped. Nothing else should run meanwhile: two
busy threads on two cores suffer badly from a third, theirs more than ours. What other processes
took is measured; a disturbed row is marked and measured again by the next run.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.step import environment, profile, records, report, runs, scaling, written
from benchmarks.step.rows import BY_NAME, ROWS, Row

BUSY = 0.5  # a load average above this will show in the numbers


class Kind(NamedTuple):
    """A measurement, and the rows it is taken of."""

    measure: Callable[[Row, runs.Plan], Iterator[records.Record]]
    rows: Collection[str]


KINDS = {
    "step": Kind(runs.measure, BY_NAME),
    "scaling": Kind(scaling.measure, scaling.ROWS),
    "written": Kind(written.measure, written.ROWS),
    "profile": Kind(profile.measure, profile.ROWS),
}


def main() -> None:
    """Measure what is asked for, then write the report."""
    options = _options()
    rows = [BY_NAME[name] for name in options.rows.split(",")] if options.rows else list(ROWS)
    failed = [] if options.report else _measure(rows, options)
    report.write(records.load(options.record), options.docs)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-step", description=__doc__.splitlines()[0])
    root = records.BENCHMARKS.parent
    names = ",".join(BY_NAME)
    parser.add_argument("--rows", default="", help=f"some of {names}; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512, help="the table is for 512")
    parser.add_argument("--wait", choices=("passive", "active"), default="passive")
    parser.add_argument("--skip-theirs", action="store_true", help="time ours only")
    parser.add_argument("--kinds", default="", help=f"some of {','.join(KINDS)}; all by default")
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--record", type=Path, default=records.RECORDS)
    parser.add_argument("--docs", type=Path, default=root / "docs" / "lab")
    parser.add_argument("--venv", type=Path, default=root / ".venv-bench")
    options = parser.parse_args()
    unknown = [name for name in options.rows.split(",") if name and name not in BY_NAME]
    odd = [kind for kind in options.kinds.split(",") if kind and kind not in KINDS]
    if odd:
        parser.error(f"no kind {odd[0]!r}; the kinds are {','.join(KINDS)}")
    if unknown:
        parser.error(f"no row {unknown[0]!r}; the rows are {names}")
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    return options


def _measure(rows: list[Row], options: argparse.Namespace) -> list[str]:
    """Measure the rows; returns those that failed, which should not cost us the others."""
    python = None if options.skip_theirs else environment.python_of(options.venv.absolute())
    plan = runs.Plan(options.repeats, options.threads, options.batch, python, options.wait)
    jobs = [(row, kind) for kind in KINDS for row in rows if row.name in KINDS[kind].rows]
    if options.kinds:
        jobs = [(row, kind) for row, kind in jobs if kind in options.kinds.split(",")]
    failed = []
    for row, kind in jobs:
        needs_theirs = kind == "step" and python is not None
        if not options.again and _known(options, row.name, kind, needs_theirs):
            print(f"{row.name}: {kind} is recorded already", flush=True)
            continue
        try:
            _record(row, kind, options, plan)
        except RuntimeError as error:
            print(f"{row.name}: {kind} failed\n{error}", file=sys.stderr, flush=True)
            failed.append(f"{row.name} ({kind})")
    return failed


def _record(row: Row, kind: str, options: argparse.Namespace, plan: runs.Plan) -> None:
    """Measure and keep."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"{row.name}: load average is {load:.1f}; stop other work first", flush=True)
    place = records.circumstances(_command(), options.threads)
    place["machine"]["wait"] = options.wait
    place |= {"batch": options.batch, "repeats": options.repeats}
    for record in KINDS[kind].measure(row, plan):
        whole = {"kind": kind, **record, **place}
        records.append(options.record, whole)
        print(report.line(whole), flush=True)


def _known(options: argparse.Namespace, name: str, kind: str, needs_theirs: bool) -> bool:
    """Whether a row was recorded undisturbed, with these versions and, if needed, with theirs."""
    machine = {"threads": options.threads, "wait": options.wait}
    wanted = (kind, name, options.batch, records.versions())
    for record in records.load(options.record):
        if record["foreign_cores"] > runs.DISTURBED:
            continue
        found = (*(record[key] for key in ("kind", "row", "batch")), record["ours"]["versions"])
        alike = found == wanted and machine.items() <= record["machine"].items()
        if alike and (not needs_theirs or record["theirs"]):
            return True
    return False


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks.step", *sys.argv[1:]])


if __name__ == "__main__":
    main()
