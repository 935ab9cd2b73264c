"""Targets: files of records, plain and packed."""

import gzip
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from hardstep.bench import records
from hardstep.errors import HardstepError
from tests.fuzz.answers import ACCEPTED, REFUSED, Fault, ask, judge
from tests.fuzz.damage import damage, damage_binary
from tests.fuzz.target import Case, Target
from tests.fuzz.trees import damage_tree, from_json, to_json, values

FILE, PACKED, PAGE = Path("a.jsonl"), Path("a.jsonl.gz"), Path("page.html")
COMPARE = "compare mlp --methods random,mezo --budget 200 --seeds 2 --no-picture"
COMMANDS = (
    ("bench", "table", str(FILE), "--reference", "random"),
    ("report", str(FILE), "--reference", "random", "--out", str(PAGE)),
)


class Records(Target):
    """Records: every one that is used is as it was written; the others are named and skipped."""

    name, share = "records", 2.0
    file = FILE
    strategy = st.lists(
        values | st.dictionaries(st.sampled_from((*records.REQUIRED, "schema", "test")), values),
        max_size=3,
    ).map(lambda lines: b"".join(map(to_json, lines)))

    def prepare(self) -> None:
        """Compare two methods."""
        answer = ask(*COMPARE.split(), "--records", str(FILE))
        assert answer.code == 0, answer.err

    def open(self) -> None:
        """What is recorded."""
        self.content = FILE.read_bytes()
        self.records = records.load(FILE).records
        FILE.unlink()

    def vary(self, rng: Random) -> Case:
        """Damaged, or a record with other values."""
        if rng.random() < 0.5:
            return Case(damage(self.content, rng, [self.content]), exact=True)
        return Case(b"".join(map(to_json, self._change_one(rng))))

    def _change_one(self, rng: Random) -> list[Any]:
        lines = list(map(from_json, self.content.splitlines()))
        chosen = rng.randrange(len(lines))
        lines[chosen] = damage_tree(lines[chosen], rng)
        return lines

    def read(self, case: Case) -> str:
        """As the commands do; a refusal of the table is none of the page."""
        self.file.write_bytes(case.content)
        try:
            self._compare(case)
            given = case.content.decode("latin-1")
            outcomes = {judge(ask(*command), given) for command in COMMANDS}
        finally:
            self.file.unlink()
            PAGE.unlink(missing_ok=True)
        return REFUSED if REFUSED in outcomes else ACCEPTED

    def _compare(self, case: Case) -> None:
        if not case.exact:
            return
        try:
            loaded = records.load(FILE)
        except HardstepError:
            return
        for record in loaded.records:
            if any(known.items() <= record.items() for known in self.records):
                continue  # perhaps with a member more, which nothing reads
            raise Fault("a damaged record is used", "bench/records.py")


class PackedRecords(Records):
    """The same, packed."""

    name, share = "packed-records", 0.5
    file = PACKED
    strategy = None

    def open(self) -> None:
        """What is recorded."""
        super().open()
        self.packed = gzip.compress(self.content, mtime=0)

    def vary(self, rng: Random) -> Case:
        """Damaged after packing, or before."""
        if rng.random() < 0.7:
            return Case(damage_binary(self.packed, rng, [self.packed]), exact=True)
        return Case(gzip.compress(damage(self.content, rng, [self.content]), mtime=0), exact=True)
