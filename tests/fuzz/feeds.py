"""Where inputs come from: samples that are changed, hypothesis, or a finding that was kept."""

from collections.abc import Callable
from random import Random

import hypothesis
from hypothesis import strategies as st

from tests.fuzz.target import Case, Target
from tests.fuzz.worker import Feed

Use = Callable[[Case], None]


def change_samples(seed: str, count: int) -> Feed:
    """So many inputs from this seed."""

    def feed(target: Target, use: Use) -> None:
        rng = Random(seed)
        for _ in range(count):
            use(target.vary(rng))

    return feed


def draw(seed: str, count: int) -> Feed:
    """So many from nothing, by hypothesis, which is not told what was found and continues."""

    def feed(target: Target, use: Use) -> None:
        assert target.strategy is not None
        settings = hypothesis.settings(
            max_examples=count,
            phases=[hypothesis.Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        run = hypothesis.given(target.strategy)(lambda content: use(Case(content)))
        hypothesis.seed(seed)(settings(run))()

    return feed


def warm_up() -> None:
    """Let hypothesis build its tables of characters once, before processes are made of this one."""
    dummy = Target()
    dummy.strategy = st.text().map(str.encode)
    draw("", 5)(dummy, lambda case: None)


def repeat(case: Case) -> Feed:
    """This one."""
    return lambda target, use: use(case)
