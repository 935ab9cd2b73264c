"""Targets: DIMACS CNF and WCNF, read and recounted by a second reader in plain Python."""

import gzip
import json
import lzma
import re
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import strategies as st

from hardstep.errors import HardstepError
from hardstep.maxsat import Formula, read
from tests.fuzz.answers import ACCEPTED, Fault, ask, judge, refuse
from tests.fuzz.damage import damage, damage_binary
from tests.fuzz.target import Case, Target
from tests.maxsat.naive import Plain, as_lists, falsified, normal, parse

FILE = Path("formula")
MOST_VARIABLES = 100_000  # that the second reader, in plain Python, is given to count
_ZERO = re.compile(r"(?<!\S)-?0+(?!\S)")  # however it is written, it closes a clause
SAMPLES = (
    b"c random\np cnf 5 6\n1 -2 3 0\n-1 2 0\n4 5 -3 0\n-4 0\n2 -5 0\n1 1 -3 0\n",
    b"p cnf 3 2\n1 2\n-3 0 -1 -2 3 0\n%\n0\n",
    b"p wcnf 4 5 100\n100 1 2 0\n7 -1 0\n3 -2 3 0\n100 -3 4 0\n12 4 0\n",
    b"c new format\nh 1 2 0\n5 -1 0\nh -2 3 0\n1000000000000 -3 0\n2 3 1 0\n",
)
words = st.sampled_from(
    [
        *("p", "cnf", "wcnf", "h", "c", "%", "0", "0", "0", "1", "-1", "2", "-2", "3", "5"),
        *("-0", "00", "+1", "01", "--1", "1e3", "16777217", "2147483647", "2147483648"),
        *("4611686018427387904", "9223372036854775808"),
    ]
)


class Dimacs(Target):
    """The reader: refused, or the clauses that the text says."""

    name, share = "formula", 4.0
    strategy = st.lists(st.tuples(words, st.sampled_from(" \n\t")), max_size=60).map(
        lambda parts: "".join(word + blank for word, blank in parts).encode()
    )

    def vary(self, rng: Random) -> Case:
        """A text with changes, plain or packed; or damaged after packing."""
        sample = rng.choice(SAMPLES)
        if rng.random() < 0.7:
            return Case(damage(sample, rng, SAMPLES))
        pack = rng.choice((lambda text: gzip.compress(text, mtime=0), lzma.compress))
        if rng.random() < 0.5:
            return Case(pack(damage(sample, rng, SAMPLES)))
        return Case(damage_binary(pack(sample), rng, [pack(sample)]))

    def read(self, case: Case) -> str:
        """Compare with the second reader."""
        FILE.write_bytes(case.content)
        try:
            formula = read(FILE)
        except HardstepError as error:
            return refuse(error, case.content.decode("latin-1"))
        finally:
            FILE.unlink()
        plain = _parse(case.content)
        if plain is not None and normal(plain) != as_lists(formula):
            raise Fault("the second reader finds another formula", "maxsat/dimacs/reader.py")
        return ACCEPTED


class MaxSat(Dimacs):
    """The command: what it says to be falsified is what a recount finds."""

    name, share = "maxsat", 0.5
    strategy = None

    def read(self, case: Case) -> str:
        """Search for one step."""
        FILE.write_bytes(case.content)
        try:
            answer = ask("maxsat", str(FILE), "--steps", "1", "--json")
            outcome = judge(answer, case.content.decode("latin-1"))
            if outcome == ACCEPTED:
                _recount(json.loads(answer.out), read(FILE), case)
        finally:
            FILE.unlink()
        return outcome


def _recount(said: dict[str, object], formula: Formula, case: Case) -> None:
    assignment = np.array([digit == "1" for digit in str(said["assignment"])])
    counted = formula.cost(assignment)
    plain = _parse(case.content)
    if plain is not None:
        weight, hard = falsified(plain, assignment)
        counted = (weight, hard)
    if (said["falsified_weight"], said["falsified_hard"]) != counted:
        raise Fault("a recount finds another cost", "maxsat/objective.py", str(said))


def _parse(content: bytes) -> Plain | None:
    """What the second reader finds; nothing where it does not know the dialect, or is too slow."""
    for unpack in (gzip.decompress, lzma.decompress):
        try:
            content = unpack(content)
        except (OSError, EOFError, lzma.LZMAError):
            continue
    text = _ZERO.sub("0", content.decode("latin-1"))
    try:
        plain = parse(text)
    except (ValueError, IndexError):
        return None
    return plain if plain.num_variables <= MOST_VARIABLES else None
