"""Small gymnasium environments for tests; worker processes import them without torch."""

import os
import signal
from typing import Any

import gymnasium as gym
import numpy as np


class Walk(gym.Env):  # type: ignore[type-arg]
    """A point that is pushed about; two choices of pushes, 20 steps or until it is far away."""

    action_space: Any = gym.spaces.MultiDiscrete([3, 2])
    observation_space: Any = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    ignores_seed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=None if self.ignores_seed else seed)
        self.steps, self.seed = 0, seed
        self.place = self.np_random.normal(size=2)
        return self.place.copy(), {}

    def push(self, action: Any) -> Any:
        return np.asarray(action, dtype=np.float64) - [1, 0.5]

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        self.place = self.place + 0.3 * self.push(action) + 0.1 * self.np_random.normal(size=2)
        far = bool(np.abs(self.place).max() > 2)
        return self.place.copy(), -float(self.place @ self.place), far, self.steps >= 20, {}


class Binary(Walk):
    action_space = gym.spaces.MultiBinary(2)


class Late(Walk):
    """One choice, counted from 1."""

    action_space = gym.spaces.Discrete(3, start=1)

    def push(self, action: Any) -> Any:
        return np.array([action - 2.0, 0.0])


class Endless(Walk):
    def step(self, action: Any) -> Any:
        return np.zeros(2), 1.0, False, False, {}


class Unseeded(Walk):
    ignores_seed = True


class Raising(Walk):
    def step(self, action: Any) -> Any:
        if self.steps == 7 and self.seed == 5:
            raise RuntimeError("the motor is stuck\nand hot")
        return super().step(action)


class NanReward(Walk):
    def step(self, action: Any) -> Any:
        place, reward, *rest = super().step(action)
        return place, np.nan if self.seed == 5 and self.steps == 1 else reward, *rest


class NanObservation(Walk):
    def step(self, action: Any) -> Any:
        place, *rest = super().step(action)
        return place * (np.nan if self.seed == 5 else 1), *rest


class Deadly(Walk):
    def step(self, action: Any) -> Any:
        if self.seed == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Pictures(Walk):
    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Named(Walk):
    observation_space = gym.spaces.Dict({"x": gym.spaces.Box(-1, 1, (2,))})


class Odd(Walk):
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(2)])


def make_vector() -> Any:
    return gym.vector.SyncVectorEnv([Walk] * 3)


def make_vector_without_resets() -> Any:
    return gym.vector.SyncVectorEnv([Walk] * 3, autoreset_mode="Disabled")
