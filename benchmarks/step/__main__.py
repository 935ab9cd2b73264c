"""Time one optimizer step of hardstep and of the authors' polystep, row by row.

    make bench-step                                      all rows that are not recorded yet
    make bench-step ARGS="--rows mlp,snn --repeats 1"    some rows, quickly
    make bench-step ARGS="--kinds network"               only the second table
    make bench-step ARGS="--against REV"                 the first table's rows beside a commit's
    make bench-step ARGS="--report"                      only the tables and the charts

Each row appends one JSON line to a file in benchmarks/results, bench-step.jsonl for the first table
and bench-networks.jsonl for the second; a row recorded with the same versions and the same sources
of hardstep is skipped. Nothing else should run meanwhile: two busy threads on two cores suffer
badly from a third, theirs more than ours. What other processes took is measured; a disturbed row is
marked and measured again by the next run.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.step import (
    against,
    environment,
    network_report,
    network_runs,
    profile,
    records,
    report,
    runs,
    scaling,
    written,
)
from benchmarks.step.network_rows import BATCH as NETWORK_BATCH
from benchmarks.step.network_rows import BY_NAME as NETWORKS
from benchmarks.step.rows import BY_NAME, Row
from hardstep._files import describe_command

WEIGHTS = records.BENCHMARKS.parent / "runs" / "bench-networks"  # after ten steps; kept
BUSY = 0.5  # a load average above this will show in the numbers


class Kind(NamedTuple):
    """A measurement, the rows it is taken of, and how a record of it is shown in a line."""

    measure: Callable[[Any, runs.Plan], Iterator[records.Record]]
    rows: Mapping[str, Any]
    line: Callable[[records.Record], str] = report.line
    with_theirs: bool = False


def _some(names: tuple[str, ...]) -> dict[str, Row]:
    return {name: BY_NAME[name] for name in names}


KINDS = {
    "step": Kind(runs.measure, BY_NAME, with_theirs=True),
    "scaling": Kind(scaling.measure, _some(scaling.ROWS)),
    "written": Kind(written.measure, _some(written.ROWS)),
    "profile": Kind(profile.measure, _some(profile.ROWS)),
    "network": Kind(
        partial(network_runs.measure, weights=WEIGHTS),
        NETWORKS,
        network_report.line,
        with_theirs=True,
    ),
}
AGAINST = "against"


def main() -> None:
    """Measure what is asked for, then write the report."""
    options = _options()
    failed = [] if options.report else _measure(options)
    report.write(records.load(options.record), options.docs)
    network_report.write(records.load(options.network_record), options.docs)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-step", description=__doc__.splitlines()[0])
    root = records.BENCHMARKS.parent
    known = [*BY_NAME, *NETWORKS]
    names = ",".join(known)
    parser.add_argument("--rows", default="", help=f"some of {names}; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512, help="the first table is for 512")
    parser.add_argument("--wait", choices=("passive", "active"), default="passive")
    parser.add_argument("--skip-theirs", action="store_true", help="time ours only")
    parser.add_argument("--kinds", default="", help=f"some of {','.join(KINDS)}; all by default")
    parser.add_argument("--against", default="", metavar="REV", help="a commit to compare with")
    parser.add_argument("--again", action="store_true", help="also what is recorded already")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--record", type=Path, default=records.RECORDS)
    parser.add_argument("--network-record", type=Path, default=records.NETWORK_RECORDS)
    parser.add_argument("--docs", type=Path, default=root / "docs" / "lab")
    parser.add_argument("--venv", type=Path, default=root / ".venv-bench")
    options = parser.parse_args()
    options.rows = [name for name in options.rows.split(",") if name] or known
    options.kinds = [kind for kind in options.kinds.split(",") if kind] or list(KINDS)
    if odd := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"no kind {odd[0]!r}; the kinds are {','.join(KINDS)}")
    if odd := [name for name in options.rows if name not in known]:
        parser.error(f"no row {odd[0]!r}; the rows are {names}")
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    return options


def _measure(options: argparse.Namespace) -> list[str]:
    """Measure the rows; returns those that failed, which should not cost us the others."""
    if options.against:
        with against.checkout(options.against) as tree:
            kind = Kind(partial(against.measure, tree=tree), BY_NAME, against.line)
            return _measure_kinds({AGAINST: kind}, options)
    return _measure_kinds({name: KINDS[name] for name in options.kinds}, options)


def _measure_kinds(kinds: dict[str, Kind], options: argparse.Namespace) -> list[str]:
    jobs = [(kind, name) for kind in kinds for name in options.rows if name in kinds[kind].rows]
    compared = any(kinds[kind].with_theirs for kind, _ in jobs) and not options.skip_theirs
    python = environment.python_of(options.venv.absolute()) if compared else None
    failed = []
    for kind, name in jobs:
        needs_theirs = kinds[kind].with_theirs and compared
        if not options.again and _known(options, name, kind, needs_theirs):
            print(f"{name}: {kind} is recorded already", flush=True)
            continue
        batch = _batch(options, kind)
        plan = runs.Plan(options.repeats, options.threads, batch, python, options.wait)
        try:
            _record(kinds[kind], name, kind, options, plan)
        except RuntimeError as error:
            print(f"{name}: {kind} failed\n{error}", file=sys.stderr, flush=True)
            failed.append(f"{name} ({kind})")
    return failed


def _record(
    kind: Kind, name: str, label: str, options: argparse.Namespace, plan: runs.Plan
) -> None:
    """Measure and keep."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"{name}: load average is {load:.1f}; stop other work first", flush=True)
    place = records.circumstances(describe_command(), options.threads)
    place["machine"]["wait"] = options.wait
    place |= {"batch": plan.batch_size, "repeats": options.repeats}
    for record in kind.measure(kind.rows[name], plan):
        whole = {"kind": label, **record, **place}
        records.append(_file(options, label), whole)
        print(kind.line(whole), flush=True)


def _batch(options: argparse.Namespace, kind: str) -> int:
    return NETWORK_BATCH if kind == "network" else int(options.batch)


def _file(options: argparse.Namespace, kind: str) -> Path:
    """Where records of a kind are kept."""
    found: Path = options.network_record if kind == "network" else options.record
    return found


def _known(options: argparse.Namespace, name: str, kind: str, needs_theirs: bool) -> bool:
    """Whether a row was recorded undisturbed, with these versions and, if needed, with theirs."""
    machine = {"threads": options.threads, "wait": options.wait}
    wanted = (kind, name, _batch(options, kind), records.versions())
    for record in records.load(_file(options, kind)):
        if record["foreign_cores"] > runs.DISTURBED:
            continue
        if kind == AGAINST and record.get("revision") != against.resolve(options.against):
            continue
        found = (*(record[key] for key in ("kind", "row", "batch")), record["ours"]["versions"])
        alike = found == wanted and machine.items() <= record["machine"].items()
        if alike and (not needs_theirs or record["theirs"]):
            return True
    return False


if __name__ == "__main__":
    main()
