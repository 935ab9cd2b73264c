"""Feed damaged files and odd command lines to the program, and keep what it does not refuse well.

    make fuzz                                        an hour
    make fuzz ARGS="--minutes 5 --only suite,task"   some targets, for five minutes
    make fuzz ARGS="--seed 7"                        other inputs
    make fuzz ARGS="--replay runs/fuzz/suite-1234"   one finding again, with its traceback
    make fuzz ARGS="--record counts.json"            the counts, for docs

Exit code 1 says that something was found; each finding is a folder in runs/fuzz with its input.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")  # before torch loads
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True

from hardstep._pages import markdown_table  # noqa: E402
from tests.fuzz.catalogue import TARGETS  # noqa: E402
from tests.fuzz.feeds import repeat  # noqa: E402
from tests.fuzz.findings import Findings, load  # noqa: E402
from tests.fuzz.rounds import FOUND, Limits, Rounds  # noqa: E402

COLUMNS = ("inputs", "refused", "accepted", FOUND, "seconds")


def main() -> int:
    """Run, print the counts; 1 if something was found."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="hardstep-fuzz-") as place:
        if options.replay is not None:
            return _replay(options.replay, Path(place))
        targets = [TARGETS[name] for name in options.only.split(",")]
        found = Findings(options.findings)
        rounds = Rounds(targets, Path(place), found, options.seed)
        try:
            rounds.run(Limits(options.inputs, options.minutes))
        except KeyboardInterrupt:
            print("interrupted; the counts so far:")
    recorded = rounds.record()
    print(format_counts(recorded))
    if found.by_key:
        print(f"{len(found.by_key)} findings are in {options.findings}; replay one with --replay")
    if options.record is not None:
        options.record.write_text(json.dumps(recorded, indent=1) + "\n")
    return 1 if found.by_key else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="60 if no number of inputs is given")
    parser.add_argument("--inputs", type=int, help="stop after about so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TARGETS), help="some of the targets")
    parser.add_argument("--findings", type=Path, default=Path("runs/fuzz"), metavar="FOLDER")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts as JSON")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="of one finding")
    options = parser.parse_args()
    odd = [name for name in options.only.split(",") if name not in TARGETS]
    if odd:
        parser.error(f"no target {odd[0]!r}; the targets are {', '.join(TARGETS)}")
    if options.minutes is None and options.inputs is None:
        options.minutes = 60.0
    return options


def format_counts(recorded: dict) -> str:
    """A table in Markdown, as docs have it."""
    rows = [*recorded["targets"].items(), ("all", recorded["total"])]
    cells = [[name, *(f"{row[column]:,}" for column in COLUMNS)] for name, row in rows]
    return markdown_table(("target", *COLUMNS), cells)


def _replay(folder: Path, place: Path) -> int:
    """Read the input of a finding again, and show what comes of it."""
    name, case = load(folder)
    rounds = Rounds([TARGETS[name]], place / "read", Findings(place / "found"))
    rounds.read(TARGETS[name], repeat(case))
    for found in rounds.findings.by_key.values():
        print(found.said)
    print(f"{name}: {', '.join(rounds.counts[name])}")
    return 1 if rounds.findings.by_key else 0


if __name__ == "__main__":
    sys.exit(main())
