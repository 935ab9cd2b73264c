"""Target: suites, which are a user's text: read, or refused in one sentence."""

import tomllib
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from hardstep.bench import suite
from tests.fuzz.answers import ask, close, judge
from tests.fuzz.damage import damage
from tests.fuzz.target import Case, Target
from tests.fuzz.trees import damage_tree, to_toml, values

FILE = Path("suite.toml")
SAMPLE = (suite.__doc__ or "").partition("\n\n")[2]
KEYS = tuple(suite.RUN_KEYS)


class Suite(Target):
    """`bench run`, up to its first run."""

    name, share = "suite", 2.0
    strategy = st.fixed_dictionaries(
        {"run": st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=5), max_size=2)},
        optional={"data": values, "options": values},
    ).map(to_toml)

    def prepare(self) -> None:
        """The example of the documentation."""
        FILE.write_text(SAMPLE)

    def open(self) -> None:
        """No run begins."""
        close("bench.carry_out")
        self.content = SAMPLE.encode()
        self.tree = tomllib.loads(SAMPLE)

    def vary(self, rng: Random) -> Case:
        """Changed as text, or key by key."""
        if rng.random() < 0.5:
            return Case(damage(self.content, rng, [self.content]))
        return Case(to_toml(damage_tree(self.tree, rng)))

    def read(self, case: Case) -> str:
        """As the command does."""
        FILE.write_bytes(case.content)
        return judge(ask("bench", "run", str(FILE)), case.content.decode("utf-8", "replace"))
