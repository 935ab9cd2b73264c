"""Play compiled environments: NumPy in, NumPy out.

Candidates x starts are cut into ranges for threads, which never changes a bit of a result.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from hardstep._checks import check_count, check_name
from hardstep.errors import ConfigError
from hardstep.rl.classic.compiled import LANES
from hardstep.rl.classic.kernel import play_pairs
from hardstep.rl.classic.physics import look, move
from hardstep.rl.classic.policy import ACTIVATIONS
from hardstep.rl.classic.specifications import Specification, specify
from hardstep.rl.environments import Episodes
from hardstep.rl.spaces import Array

_LEAST_PAIRS = 32 * LANES  # in a range: where it ends, lanes run empty
_RANGES = 8  # for every thread, so that none waits long for another


def play(
    environment: str,
    layers: Sequence[tuple[Array, Array]],
    activation: str,
    mean: Array,
    scale: Array,
    starts: Array,
    *,
    horizon: int,
    threads: int,
    statistics: bool = False,
) -> Episodes:
    """An episode of every candidate on every start.

    An episode also ends where an output is not a number; its return is NaN then.

    Args:
        environment: Name, as in CLASSIC.
        layers: One or two pairs of weights (N, out, in) and bias (N, out).
        activation: Of the hidden layer: relu, tanh, int8 or binary.
        mean: (O,) taken from an observation,
        scale: (O,) and what the rest is multiplied by.
        starts: Initial states (M, S).
        horizon: Steps of an episode, at most.
        threads: At most so many run; results do not depend on it.
        statistics: Whether to sum up the observations that the policies saw.

    Raises:
        ConfigError: A name is not known, or sizes do not fit.
    """
    specification = specify(environment)
    check_name(activation, ACTIVATIONS, "activation of a policy")
    check_count("play: horizon", horizon)
    check_count("play: threads", threads)
    candidates, hidden = _join(environment, specification, layers)
    starts = _check_states(environment, specification, starts)
    mean = _check_normalizer(environment, specification, mean)
    scale = _check_normalizer(environment, specification, scale)
    shape = (len(candidates), len(starts))
    returns, lengths = np.empty(shape), np.empty(shape, dtype=np.int64)
    terminated = np.empty(shape, dtype=np.bool_)
    sums, squares = (np.empty((*shape, specification.observations)) for _ in range(2))
    first_observed = observe(environment, starts).astype(np.float64)

    def play_range(first: int, last: int) -> None:
        play_pairs(
            specification.code,
            ACTIVATIONS.index(activation),
            candidates,
            hidden,
            specification.outputs,
            mean,
            scale,
            starts,
            first_observed,
            horizon,
            first,
            last,
            returns.reshape(-1),
            lengths.reshape(-1),
            terminated.reshape(-1),
            statistics,
            sums.reshape(-1, specification.observations),
            squares.reshape(-1, specification.observations),
        )

    bounds = _cut(returns.size, threads)
    if threads == 1 or len(bounds) < 3:
        play_range(0, returns.size)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(play_range, bounds[:-1], bounds[1:]))
    if statistics:
        return Episodes(returns, lengths, terminated, sums, squares)
    return Episodes(returns, lengths, terminated)


def observe(environment: str, states: Array) -> Array:
    """What gymnasium shows of states (B, S): float32 observations (B, O).

    The angles with which Acrobot starts are float32, and gymnasium takes their sines in float32.
    """
    specification = specify(environment)
    states = _check_states(environment, specification, states)
    observations = np.empty((len(states), specification.observations))
    observed = np.empty((specification.observations, LANES))
    for first in range(0, len(states), LANES):
        block, rows = _load(states, first)
        look(specification.code, block, observed)
        observations[rows] = observed.T[: len(states) - first]
    shown = observations.astype(np.float32)
    if environment == "Acrobot-v1":
        single = states.astype(np.float32)
        starting = (single == states).all(axis=1)
        angles = single[starting, :2]
        shown[starting, 0:4:2], shown[starting, 1:4:2] = np.cos(angles), np.sin(angles)
    return shown


def step(environment: str, states: Array, actions: Array) -> tuple[Array, Array, Array]:
    """States (B, S) after one step with actions (B,), rewards (B,) and which terminated (B,)."""
    specification = specify(environment)
    states = _check_states(environment, specification, states)
    after = np.empty_like(states)
    rewards, terminated = np.empty(len(states)), np.empty(len(states), dtype=np.bool_)
    actions = np.asarray(actions, dtype=np.float64)
    action, reward, ended = np.zeros(LANES), np.empty(LANES), np.empty(LANES)
    for first in range(0, len(states), LANES):
        block, rows = _load(states, first)
        count = len(states) - first
        action[:count] = actions[rows]
        move(specification.code, block, action, reward, ended)
        after[rows], rewards[rows] = block.T[:count], reward[:count]
        terminated[rows] = ended[:count] != 0
    return after, rewards, terminated


def _load(states: Array, first: int) -> tuple[Array, slice]:
    """States from a row on as (S, LANES), and which rows they are."""
    rows = slice(first, first + LANES)
    block = np.zeros((states.shape[1], LANES))
    block[:, : len(states) - first] = states[rows].T
    return block, rows


def _cut(pairs: int, threads: int) -> list[int]:
    """Where ranges of pairs begin and end: at least one for each thread, if there are so many."""
    ranges = min(max(pairs // _LEAST_PAIRS, threads), _RANGES * threads, pairs)
    return [pairs * number // max(ranges, 1) for number in range(ranges + 1)]


def _join(
    environment: str, specification: Specification, layers: Sequence[tuple[Array, Array]]
) -> tuple[Array, int]:
    """All parameters of a candidate in a row (N, P), and how many hidden units it has."""
    if len(layers) not in (1, 2):
        raise ConfigError(f"play: a policy has one or two layers, got {len(layers)}")
    hidden = layers[0][1].shape[-1] if len(layers) == 2 else 0
    sizes = [specification.observations, *([hidden] if hidden else []), specification.outputs]
    num = len(layers[0][0])
    for (weights, bias), (before, after) in zip(layers, pairwise(sizes), strict=True):
        if weights.shape != (num, after, before) or bias.shape != (num, after):
            raise ConfigError(
                f"play: {environment} needs weights {(num, after, before)} and bias "
                f"{(num, after)}, got {weights.shape} and {bias.shape}"
            )
    parts = [part.reshape(num, part[0].size if num else 0) for pair in layers for part in pair]
    return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64), hidden


def _check_states(environment: str, specification: Specification, states: Array) -> Array:
    states = np.ascontiguousarray(states, dtype=np.float64)
    if states.ndim != 2 or states.shape[1] != specification.states:
        raise ConfigError(
            f"{environment}: states must be (M, {specification.states}), got {states.shape}"
        )
    return states


def _check_normalizer(environment: str, specification: Specification, values: Array) -> Array:
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.shape != (specification.observations,):
        raise ConfigError(
            f"{environment}: mean and scale must be ({specification.observations},), "
            f"got {values.shape}"
        )
    return values
