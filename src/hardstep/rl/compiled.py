"""Four environments of gymnasium, compiled: all candidates and episodes in one call."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hardstep._checks import check_name
from hardstep.rl.classic.rollouts import play
from hardstep.rl.classic.starts import starts
from hardstep.rl.environments import Episodes
from hardstep.rl.spaces import Continuous, Discrete, Space
from hardstep.rl.stacks import Stack


@dataclass(frozen=True)
class _Facts:
    observations: int
    space: Space
    horizon: int


CLASSIC = {
    "CartPole-v1": _Facts(4, Discrete(2), 500),
    "Acrobot-v1": _Facts(6, Discrete(3), 500),
    "MountainCar-v0": _Facts(2, Discrete(3), 200),
    "Pendulum-v1": _Facts(3, Continuous((-2.0,), (2.0,)), 200),
}


class Classic:
    """CartPole-v1, Acrobot-v1, MountainCar-v0 or Pendulum-v1, without gymnasium.

    Starts are those of gymnasium's `reset(seed=…)`, and so is every step up to rounding.

    Args:
        name: As gymnasium calls it.
        threads: How many play at once; results are the same with any number.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        check_name(name, CLASSIC, "compiled environment")
        self.name = name
        self.threads = threads or os.cpu_count() or 1
        self.observations = CLASSIC[name].observations
        self.space = CLASSIC[name].space
        self.horizon = CLASSIC[name].horizon

    def play(self, policies: Stack, seeds: Sequence[int], statistics: bool = False) -> Episodes:
        """One episode for every policy and seed."""
        played = play(
            self.name,
            policies.layers,
            policies.activation,
            policies.mean,
            policies.scale,
            starts(self.name, seeds),
            horizon=self.horizon,
            threads=self.threads,
            statistics=statistics,
        )
        return Episodes(*played)

    def close(self) -> None:
        """Nothing is left running."""
