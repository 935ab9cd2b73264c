"""Gymnasium and NumPy, one step at a time: what the compiled environments are held to."""

from typing import NamedTuple

import gymnasium
import numpy as np

from hardstep.rl.classic import CLASSIC, specify
from hardstep.rl.stacks import ACTIVATIONS


class Visits(NamedTuple):
    """Steps that gymnasium took."""

    states: np.ndarray  # (B, S) before
    actions: np.ndarray  # (B,)
    observations: np.ndarray  # (B, O) after, float32
    after: np.ndarray  # (B, S)
    rewards: np.ndarray  # (B,)
    terminated: np.ndarray  # (B,)


def visit(environment: str, count: int, seed: int = 0) -> Visits:
    """Steps of random length episodes; every action is repeated for a while, to get around."""
    random = np.random.default_rng(seed)
    env = gymnasium.make(environment).unwrapped
    discrete = environment != "Pendulum-v1"
    rows, done, left, episode = [], True, 0, 0
    while len(rows) < count:
        if done:
            env.reset(seed=seed + episode)
            episode, steps, done = episode + 1, 0, False
        if left == 0:
            left = int(random.integers(1, 15))
            action = (
                int(random.integers(env.action_space.n))
                if discrete
                else np.float32(random.uniform(-2.5, 2.5))
            )
        before = np.array(env.state, dtype=np.float64)
        seen, reward, terminated, _, _ = env.step(action if discrete else np.array([action]))
        rows.append((before, action, seen, np.array(env.state), reward, terminated))
        left, steps = left - 1, steps + 1
        done = terminated or steps >= CLASSIC[environment].horizon
    return Visits(*(np.array(column) for column in zip(*rows, strict=True)))


class Episode(NamedTuple):
    """One episode in gymnasium."""

    total: float
    length: int
    terminated: bool
    sums: np.ndarray
    squares: np.ndarray


def act(layers, number, activation, mean, scale, observation):
    """Outputs of one candidate."""
    values = (observation.astype(np.float64) - mean) * scale
    for place, (weights, bias) in enumerate(layers):
        if place:
            values = ACTIVATIONS[activation](values)
        values = weights[number] @ values + bias[number]
    return values


def play_plainly(env, layers, number, activation, mean, scale, seed, horizon) -> Episode:
    """A plain loop; `env` is a gymnasium environment."""
    seen, _ = env.reset(seed=seed)
    total, sums, squares = 0.0, np.zeros(seen.shape), np.zeros(seen.shape)
    for step in range(horizon):
        sums += seen.astype(np.float64)
        squares += seen.astype(np.float64) ** 2
        outputs = act(layers, number, activation, mean, scale, seen)
        action = int(np.argmax(outputs)) if len(outputs) > 1 else outputs.astype(np.float32)
        seen, reward, terminated, _, _ = env.step(action)
        total += float(reward)
        if terminated:
            return Episode(total, step + 1, True, sums, squares)
    return Episode(total, horizon, False, sums, squares)


def make_layers(environment: str, candidates: int, hidden: int, seed: int = 0):
    """Random policies; linear ones if there are no hidden units."""
    random = np.random.default_rng(seed)
    specification = specify(environment)
    sizes = [specification.observations, *([hidden] if hidden else []), specification.outputs]
    return [
        (random.normal(size=(candidates, after, before)), random.normal(size=(candidates, after)))
        for before, after in zip(sizes, sizes[1:], strict=False)
    ]
