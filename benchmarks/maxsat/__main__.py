"""Run what benchmarks/suites/maxsat.toml asks for and is not recorded yet, one process per run.

    make bench-maxsat                              everything
    make bench-maxsat ARGS="--suites time"         some suites, or --method RC2, or --largest 5000
    make bench-maxsat ARGS="--report"              only the tables in docs/lab/maxsat.md

Each run appends one JSON line to benchmarks/results/maxsat.jsonl; an interrupted benchmark goes
on where it stopped. Runs with a time limit want the machine for themselves.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path

from benchmarks.maxsat import report
from benchmarks.maxsat.plan import Spec, expand, give_time, key, without_seed
from hardstep.bench.records import read_lines

BENCHMARKS = Path(__file__).resolve().parent.parent
CONFIG = BENCHMARKS / "suites" / "maxsat.toml"
RECORDS = BENCHMARKS / "results" / "maxsat.jsonl"


def main() -> None:
    """Measure what is asked for, then write the report."""
    parser = argparse.ArgumentParser(prog="make bench-maxsat", description=__doc__.splitlines()[0])
    parser.add_argument("--suites", default="", help="some of the suites; all by default")
    parser.add_argument("--method", help="only this one")
    parser.add_argument("--largest", type=int, help="at most so many variables")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=BENCHMARKS.parent / "docs" / "lab")
    options = parser.parse_args()
    specs = expand(tomllib.loads(CONFIG.read_text()))
    suites = {spec["suite"] for spec in specs}
    wanted = set(options.suites.split(",")) if options.suites else suites
    if wanted - suites:
        parser.error(f"no suite {min(wanted - suites)!r}; the suites are {sorted(suites)}")
    if not options.report:
        asked = [spec for spec in specs if spec["suite"] in wanted and _is_meant(spec, options)]
        for _, alike in groupby(asked, without_seed):
            known = load()
            done = {key(record) for record in known}
            _record([spec for spec in alike if key(spec) not in done], known)
    report.write(load(), options.docs / "maxsat.md")


def load() -> list[Spec]:
    """What has been recorded."""
    return [json.loads(line) for _, line in read_lines(RECORDS)]


def _is_meant(spec: Spec, options: argparse.Namespace) -> bool:
    right = options.method in (None, spec["method"])
    return right and (options.largest is None or spec.get("variables", 0) <= options.largest)


def _record(specs: list[Spec], known: list[Spec]) -> None:
    """Runs that differ in the seed in a process of their own, so that peak memory is their own."""
    ready = [spec for spec in (give_time(spec, known) for spec in specs) if spec is not None]
    if not specs:
        return
    if not ready:
        print(f"{specs[0]['of']} is not recorded, so {specs[0]['method']} waits", file=sys.stderr)
        return
    threads = str(ready[0].get("threads", os.cpu_count()))
    limits = {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
    limits["OMP_WAIT_POLICY"] = "passive"  # as in the command
    RECORDS.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.maxsat.runs", json.dumps(ready)]
    environment = {**os.environ, **limits}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for spec, line in zip(ready, process.stdout, strict=False):
            record = {**spec, **json.loads(line)}
            with RECORDS.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
            print(report.line(record), flush=True)
    if process.returncode:
        print(f"failed with code {process.returncode}: {ready}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
