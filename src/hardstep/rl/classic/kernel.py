"""Episodes of many candidates, LANES at a time.

A pair is one candidate on one start, numbered candidate * starts + start. Every lane plays a pair;
when it ends, the next pair takes the lane. No lane sees another: the bits of an episode do not
depend on its lane, nor on what runs beside it.
"""

from typing import Any

import numpy as np

from hardstep.rl.classic.compiled import LANES, jit
from hardstep.rl.classic.physics import look, move
from hardstep.rl.classic.policy import activate, apply_layer, choose, normalize

Numbers = Any  # arrays; numba finds their types


@jit
def play_pairs(
    environment: int,
    activation: int,
    candidates: Numbers,
    hidden: int,
    num_outputs: int,
    mean: Numbers,
    scale: Numbers,
    starts: Numbers,
    first_observed: Numbers,
    horizon: int,
    first: int,
    last: int,
    returns: Numbers,
    lengths: Numbers,
    terminated: Numbers,
    statistics: bool,
    sums: Numbers,
    squares: Numbers,
) -> None:
    """Play the pairs from `first` to before `last`.

    Args:
        environment: As in specifications.
        activation: Place in policy.ACTIVATIONS.
        candidates: (N, P), all parameters of a candidate in a row.
        hidden: Hidden units, 0 for linear policies.
        num_outputs: Of a policy.
        mean: (O,).
        scale: (O,).
        starts: (M, S).
        first_observed: (M, O), at the starts.
        horizon: Steps of an episode, at most.
        first: A pair.
        last: A pair.
        returns: (N * M,), filled in, as are the next two.
        lengths: Steps taken.
        terminated: Whether the environment ended the episode.
        statistics: Whether to fill in the next two.
        sums: (N * M, O) of observations.
        squares: (N * M, O).
    """
    num_observed = len(mean)
    parameters = np.zeros((candidates.shape[1], LANES))
    state = np.zeros((starts.shape[1], LANES))
    observed, inputs = np.zeros((num_observed, LANES)), np.zeros((num_observed, LANES))
    seen, seen_squared = np.zeros((num_observed, LANES)), np.zeros((num_observed, LANES))
    units, outputs = np.zeros((hidden, LANES)), np.zeros((num_outputs, LANES))
    best, action, invalid = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    reward, ended = np.zeros(LANES), np.zeros(LANES)
    total, taken, over = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    pair, holds = np.full(LANES, -1), np.full(LANES, -1)
    limit = np.float64(horizon)
    following, running = first, 0
    for lane in range(LANES):
        if following < last:
            begin(
                following, lane, candidates, starts, first_observed, pair, holds, parameters,
                state, observed, seen, seen_squared, total, taken,
            )  # fmt: skip
            following, running = following + 1, running + 1
    while running > 0:
        if statistics:
            add_observed(observed, seen, seen_squared)
        normalize(observed, mean, scale, inputs)
        if hidden > 0:
            place = apply_layer(parameters, 0, inputs, units)
            activate(activation, units, best)
            apply_layer(parameters, place, units, outputs)
        else:
            apply_layer(parameters, 0, inputs, outputs)
        choose(outputs, best, action, invalid)
        move(environment, state, action, reward, ended)
        if not advance(reward, ended, invalid, limit, total, taken, over):
            look(environment, state, observed)
            continue
        look(environment, state, observed)
        for lane in range(LANES):
            number = pair[lane]
            if over[lane] == 0 or number < 0:
                continue
            returns[number] = total[lane]
            lengths[number] = np.int64(taken[lane])
            terminated[number] = (ended[lane] != 0) & (invalid[lane] == 0)
            if statistics:
                for i in range(num_observed):
                    sums[number, i] = seen[i, lane]
                    squares[number, i] = seen_squared[i, lane]
            pair[lane] = -1
            if following < last:
                begin(
                    following, lane, candidates, starts, first_observed, pair, holds, parameters,
                    state, observed, seen, seen_squared, total, taken,
                )  # fmt: skip
                following += 1
            else:
                running -= 1


@jit
def begin(
    number: int,
    lane: int,
    candidates: Numbers,
    starts: Numbers,
    first_observed: Numbers,
    pair: Numbers,
    holds: Numbers,
    parameters: Numbers,
    state: Numbers,
    observed: Numbers,
    seen: Numbers,
    seen_squared: Numbers,
    total: Numbers,
    taken: Numbers,
) -> None:
    """Put a pair into a lane; the candidate's weights only if others are there."""
    candidate, start = number // len(starts), number % len(starts)
    pair[lane] = number
    if holds[lane] != candidate:
        holds[lane] = candidate
        for p in range(len(parameters)):
            parameters[p, lane] = candidates[candidate, p]
    for s in range(len(state)):
        state[s, lane] = starts[start, s]
    for i in range(len(observed)):
        observed[i, lane] = first_observed[start, i]
        seen[i, lane] = 0.0
        seen_squared[i, lane] = 0.0
    total[lane] = 0.0
    taken[lane] = 0.0


@jit
def add_observed(observed: Numbers, seen: Numbers, seen_squared: Numbers) -> None:
    """Sums of what the policies see, and of its squares."""
    for i in range(len(observed)):
        for lane in range(LANES):
            seen[i, lane] += observed[i, lane]
            seen_squared[i, lane] += observed[i, lane] * observed[i, lane]


@jit
def advance(
    reward: Numbers,
    ended: Numbers,
    invalid: Numbers,
    limit: float,
    total: Numbers,
    taken: Numbers,
    over: Numbers,
) -> bool:
    """Count the step; whether an episode is over in any lane. One without an action took none."""
    found = 0
    for lane in range(LANES):
        bad = invalid[lane] != 0
        total[lane] = np.nan if bad else total[lane] + reward[lane]
        taken[lane] = taken[lane] if bad else taken[lane] + 1.0
        ends = bad | (ended[lane] != 0) | (taken[lane] >= limit)
        over[lane] = 1.0 if ends else 0.0
        found |= 1 if ends else 0
    return found != 0
