"""Targets with a fault each, to see that it is found: `python -m tests.fuzz.planted FOLDER`.

Prints as JSON what was found, and the counts.
"""

import json
import os
import signal
import sys
from pathlib import Path
from random import Random

from tests.fuzz.answers import ACCEPTED, REFUSED, Answer, judge
from tests.fuzz.feeds import change_samples
from tests.fuzz.findings import Findings
from tests.fuzz.rounds import Rounds
from tests.fuzz.target import Case, Target


class Planted(Target):
    """Has no fault; the others differ in how they read."""

    name = "sound"

    def vary(self, rng: Random) -> Case:
        return Case(b"x" * rng.randrange(1, 9))

    def read(self, case: Case) -> str:
        return ACCEPTED if len(case.content) % 2 else REFUSED


class Raising(Planted):
    name = "raising"

    def read(self, case: Case) -> str:
        raise KeyError("no such key")


class Hanging(Planted):
    name, seconds = "hanging", 0.3

    def read(self, case: Case) -> str:
        while True:
            pass


class Crashing(Planted):
    name = "crashing"

    def read(self, case: Case) -> str:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ACCEPTED


class Greedy(Planted):
    name, memory = "greedy", 1 << 28

    def read(self, case: Case) -> str:
        return str(len(bytes(1 << 30)))


class Littering(Planted):
    name = "littering"

    def read(self, case: Case) -> str:
        Path("left").write_bytes(case.content)
        return REFUSED


class Printing(Planted):
    name = "printing"

    def read(self, case: Case) -> str:
        return judge(Answer(2, "", "hardstep: there is no file no\x1bfile\n", None), "")


FAULTS = (Planted, Raising, Hanging, Crashing, Greedy, Littering, Printing)


def main() -> None:
    """Read three inputs of each."""
    place = Path(sys.argv[1])
    rounds = Rounds([fault() for fault in FAULTS], place / "read", Findings(place / "found"),
                    say=lambda line: None)  # fmt: skip
    for target in rounds.targets:
        rounds.read(target, change_samples("0", 3))
    kept = {found.target: found.what for found in rounds.findings.by_key.values()}
    print(json.dumps({"found": kept, "counts": rounds.counts}))


if __name__ == "__main__":
    main()
