"""Whole episodes of gymnasium environments: what a worker process runs.

A worker imports this module, numpy and gymnasium, but no torch, so that it starts within a second.
"""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from hardstep._text import to_sentence
from hardstep.errors import ObjectiveError
from hardstep.rl.spaces import Array
from hardstep.rl.stacks import Stack

Pair = tuple[int, int]  # the number of a policy, and a seed


class Outcome(NamedTuple):
    """What an episode came to."""

    total: float
    length: int
    terminated: bool
    sums: Array  # (O,) of the observations acted on
    squares: Array
    trouble: str | None = None  # what was not a number, and where


class _Episode:
    """An episode under way."""

    def __init__(self, name: str, policies: Stack, pair: Pair, statistics: bool) -> None:
        self.name, self.policies, self.statistics = name, policies, statistics
        self.policy, self.seed = pair
        self.total, self.length = 0.0, 0
        self.terminated = self.done = False
        self.sums, self.squares = np.zeros_like(policies.mean), np.zeros_like(policies.mean)
        self.trouble: str | None = None

    def act(self, observation: Any) -> Array | None:
        """The action to take, or None if the episode ends here."""
        seen = np.asarray(observation, dtype=np.float64)
        if np.isnan(seen).any():
            self._stop("an observation")
            return None
        if self.statistics:
            self.sums += seen
            self.squares += seen**2
        action = self.policies.act_alone(self.policy, seen)
        if action.dtype.kind == "f" and np.isnan(action).any():
            self._stop("the policy's action")
            return None
        return action

    def take(self, reward: float, terminated: bool, truncated: bool, horizon: int) -> None:
        """Count a step."""
        self.length += 1
        self.total += reward
        self.terminated = bool(terminated)
        self.done = self.terminated or bool(truncated) or self.length >= horizon
        if not math.isfinite(self.total):
            self._stop("a reward", self.total)

    def _stop(self, what: str, total: float = math.nan) -> None:
        self.trouble = f"{what} is {total} {self.place}"
        self.total, self.done = total, True

    @property
    def place(self) -> str:
        return f"at step {self.length} of the episode with seed {self.seed}"

    def end(self) -> Outcome:
        return Outcome(
            self.total, self.length, self.terminated, self.sums, self.squares, self.trouble
        )


class Player:
    """An environment of gymnasium's, or several side by side, that plays policies.

    Args:
        source: A specification (`EnvSpec`), or a function that makes an environment.
        name: How messages call it.
        horizon: Steps of an episode, at most.
    """

    def __init__(self, source: Any, name: str, horizon: int) -> None:
        self.name, self.horizon = name, horizon
        self.environment = make(source)
        self.num = getattr(self.environment, "num_envs", 0)  # 0: not a vector environment
        space = self.environment.single_action_space if self.num else self.environment.action_space
        self._encode = choose_encoder(space)

    def play(self, policies: Stack, pairs: Sequence[Pair], statistics: bool) -> list[Outcome]:
        """An episode for every pair.

        Raises:
            ObjectiveError: The environment raised an error.
        """
        size = max(self.num, 1)
        parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
        play = self._play_together if self.num else self._play_one
        with silence():
            return [outcome for part in parts for outcome in play(policies, part, statistics)]

    def _play_one(self, policies: Stack, pairs: Sequence[Pair], statistics: bool) -> list[Outcome]:
        episode = _Episode(self.name, policies, pairs[0], statistics)
        with self._name_errors([episode]):
            observation, _ = self.environment.reset(seed=episode.seed)
            while not episode.done:
                action = episode.act(observation)
                if action is None:
                    break
                observation, reward, terminated, truncated, _ = self.environment.step(
                    self._encode(action)
                )
                episode.take(float(reward), terminated, truncated, self.horizon)
        return [episode.end()]

    def _play_together(
        self, policies: Stack, pairs: Sequence[Pair], statistics: bool
    ) -> list[Outcome]:
        filled = [*pairs, *[pairs[-1]] * (self.num - len(pairs))]
        episodes = [_Episode(self.name, policies, pair, statistics) for pair in filled]
        asked = episodes[: len(pairs)]
        with self._name_errors(asked):
            observations, _ = self.environment.reset(seed=[one.seed for one in episodes])
            actions: list[Any] = [None] * self.num
            while not all(one.done for one in asked):
                for row, episode in enumerate(episodes):
                    action = None if episode.done else episode.act(observations[row])
                    if action is not None:
                        actions[row] = self._encode(action)
                    elif actions[row] is None:  # it ended before its first step
                        actions[row] = self.environment.single_action_space.sample()
                observations, rewards, *ends, _ = self.environment.step(np.stack(actions))
                for row, episode in enumerate(episodes):
                    if not episode.done:
                        episode.take(float(rewards[row]), ends[0][row], ends[1][row], self.horizon)
                self._start_over(ends[0] | ends[1])
        return [episode.end() for episode in asked]

    def _start_over(self, done: Array) -> None:
        """Reset what is over where the vector environment leaves that to its user."""
        mode = self.environment.metadata.get("autoreset_mode")
        if done.any() and getattr(mode, "name", "") == "DISABLED":
            self.environment.reset(options={"reset_mask": done})

    @contextmanager
    def _name_errors(self, episodes: Sequence[_Episode]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            running = [one for one in episodes if not one.done] or episodes
            raise ObjectiveError(
                f"Gym: {self.name} raised {quote(error)} {running[0].place}; correct the "
                "environment, with processes=0 the error shows where"
            ) from error

    def close(self) -> None:
        """End the environment."""
        with suppress(Exception), silence():
            self.environment.close()


def make(source: Any) -> Any:
    """The environment of a specification or a factory."""
    import gymnasium

    if callable(source) or "mujoco" in str(source.entry_point):
        with suppress(ImportError):  # so that `silence` finds it
            import mujoco  # noqa: F401
    with silence():
        if callable(source):
            return source()
        # The checker of gymnasium's warns and takes time; what matters of it is checked by `Gym`.
        return gymnasium.make(source, disable_env_checker=True)


def choose_encoder(space: Any) -> Callable[[Array], Any]:
    """What turns a policy's action into one of the environment's space."""
    import gymnasium

    if isinstance(space, gymnasium.spaces.Discrete):
        first = int(space.start)
        return lambda action: first + int(action)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        start, kind = space.start, space.dtype
        return lambda action: (start + action).astype(kind)
    kind = space.dtype
    return lambda action: action.astype(kind)


@contextmanager
def silence() -> Iterator[None]:
    """Let no warning out, and keep MuJoCo from writing MUJOCO_LOG.TXT into the working folder."""
    mujoco = sys.modules.get("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mujoco is None:
            yield
            return
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_ignore)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _ignore(message: str) -> None:
    del message


def quote(error: BaseException) -> str:
    """An error's kind and words."""
    words = to_sentence(str(error)).strip()
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
