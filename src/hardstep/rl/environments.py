"""What an environment is to the rest: it plays policies and says what came of it.

An episode is a function of (policy, seed): the same pair gives the same return in any company, in
any order and with any number of workers. All policies of a call play the same seeds, so that
chance is common to them.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hardstep.rl.spaces import Array, Space
from hardstep.rl.stacks import Stack


class Episodes(NamedTuple):
    """What N policies did on M seeds."""

    returns: Array  # (N, M) float64
    lengths: Array  # (N, M) int64, interactions
    terminated: Array  # (N, M) bool; false where the horizon cut the episode
    sums: Array | None = None  # (N, M, O) of the observations, if they were asked for
    squares: Array | None = None  # (N, M, O) of their squares


class Environment(Protocol):
    """A simulator that plays whole episodes."""

    @property
    def name(self) -> str:
        """What it is called, as gymnasium calls it."""
        ...

    @property
    def observations(self) -> int:
        """Numbers in an observation."""
        ...

    @property
    def space(self) -> Space:
        """Of the actions."""
        ...

    @property
    def horizon(self) -> int:
        """Steps of an episode, at most."""
        ...

    def play(self, policies: Stack, seeds: Sequence[int], statistics: bool = False) -> Episodes:
        """One episode for every policy and seed.

        Args:
            policies: N of them.
            seeds: M of them; each fixes the start and all chance of an episode.
            statistics: Whether to sum up observations.
        """
        ...

    def close(self) -> None:
        """End what it has running."""
        ...
