"""Run what benchmarks/suites/maxsat.toml asks for and is not recorded yet, one process per run.

    make bench-maxsat                              everything
    make bench-maxsat ARGS="--suites quality"      some suites
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
from pathlib import Path

from benchmarks.maxsat import report
from benchmarks.maxsat.plan import Spec, expand, give_time, key
from hardstep.bench.records import read_lines

BENCHMARKS = Path(__file__).resolve().parent.parent
CONFIG = BENCHMARKS / "suites" / "maxsat.toml"
RECORDS = BENCHMARKS / "results" / "maxsat.jsonl"


def main() -> None:
    """Measure what is asked for, then write the report."""
    parser = argparse.ArgumentParser(prog="make bench-maxsat", description=__doc__.splitlines()[0])
    parser.add_argument("--suites", default="", help="some of the suites; all by default")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=BENCHMARKS.parent / "docs" / "lab")
    options = parser.parse_args()
    specs = expand(tomllib.loads(CONFIG.read_text()))
    suites = {spec["suite"] for spec in specs}
    wanted = set(options.suites.split(",")) if options.suites else suites
    if wanted - suites:
        parser.error(f"no suite {min(wanted - suites)!r}; the suites are {sorted(suites)}")
    if not options.report:
        done = {key(record) for record in load()}
        for spec in specs:
            if spec["suite"] in wanted and key(spec) not in done:
                _record(give_time(spec, load()), spec)
    report.write(load(), options.docs / "maxsat.md")


def load() -> list[Spec]:
    """What has been recorded."""
    return [json.loads(line) for _, line in read_lines(RECORDS)]


def _record(spec: Spec | None, asked: Spec) -> None:
    """One run in a process of its own, so that its peak memory is its own."""
    if spec is None:
        print(f"{asked['of']} is not recorded, so {asked['method']} waits", file=sys.stderr)
        return
    print(json.dumps(spec), flush=True)
    threads = str(spec.get("threads", os.cpu_count()))
    limits = {"OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
    limits["OMP_WAIT_POLICY"] = "passive"  # as in the command
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.maxsat.runs", json.dumps(spec)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **limits},
        check=False,
    )
    if done.returncode:
        print(f"  failed with code {done.returncode}", file=sys.stderr, flush=True)
        return
    result = json.loads(done.stdout)
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as stream:
        stream.write(json.dumps({**spec, **result}) + "\n")
    print("  " + report.line({**spec, **result}), flush=True)


if __name__ == "__main__":
    main()
