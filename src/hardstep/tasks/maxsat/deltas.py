"""What flipping a few variables costs: exact differences from the clauses they occur in.

A candidate moves the numbers of one particle; only those that change sign flip a variable. So a
particle of d numbers has at most 2^d different costs, and each follows from the occurrence lists
of the flipped variables, merged so that a clause they share is looked at once.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

MAX_DIM = 8  # numbers per particle; a flip pattern is a byte

Function = TypeVar("Function", bound=Callable[..., Any])


def _njit(parallel: bool) -> Callable[[Function], Function]:
    return cast(
        Callable[[Function], Function], numba.njit(cache=True, nogil=True, parallel=parallel)
    )


_compiled, _parallel = _njit(parallel=False), _njit(parallel=True)


@_parallel
def count_true(
    starts: NDArray[np.int64], literals: NDArray[np.int32], values: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """How many literals of each clause hold."""
    counts = np.empty(starts.size - 1, np.int32)
    for c in numba.prange(counts.size):
        count = 0
        for k in range(starts[c], starts[c + 1]):
            literal = literals[k]
            count += values[literal >> 1] != (literal & 1)
        counts[c] = count
    return counts


@_compiled
def _flip_cost(
    flipped: NDArray[np.int64],
    num: int,
    values: NDArray[np.bool_],
    counts: NDArray[np.int32],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
) -> float:
    """The cost of flipping `num` variables at once: a merge of their sorted occurrences."""
    at = np.empty(MAX_DIM, np.int64)
    for i in range(num):
        at[i] = first[flipped[i]]
    total = 0.0
    while True:
        clause = np.int64(-1)
        for i in range(num):
            if at[i] < first[flipped[i] + 1]:
                candidate = np.int64(occurrences[at[i]]) >> 1
                if clause < 0 or candidate < clause:
                    clause = candidate
        if clause < 0:
            return total
        change = 0
        for i in range(num):
            variable = flipped[i]
            if at[i] < first[variable + 1] and occurrences[at[i]] >> 1 == clause:
                negated = occurrences[at[i]] & 1
                holds = values[variable] != negated
                change += -1 if holds else 1
                at[i] += 1
        before = counts[clause]
        if before == 0 and change > 0:
            total -= costs[clause]
        elif before > 0 and before + change == 0:
            total += costs[clause]


@_parallel
def candidate_costs(
    places: NDArray[np.int64],
    offsets: NDArray[np.float64],
    numbers: NDArray[np.float64],
    counts: NDArray[np.int32],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Differences to the current cost, (particles, candidates).

    Args:
        places: (particles, d) variables of each particle, −1 on padding.
        offsets: (particles, candidates, d) how far a candidate moves them.
        numbers: The current point; a variable is true where its number is at least 0.
        counts: True literals per clause.
        first: Where each variable's occurrences start.
        occurrences: Clauses by variable, 2c or 2c + 1 where it is negated.
        costs: Of a falsified clause.
    """
    num_particles, num_candidates, dim = offsets.shape
    values = numbers >= 0
    result = np.empty((num_particles, num_candidates), np.float64)
    for p in numba.prange(num_particles):
        known = np.zeros(1 << MAX_DIM, np.bool_)
        cost = np.empty(1 << MAX_DIM, np.float64)
        flipped = np.empty(MAX_DIM, np.int64)
        for c in range(num_candidates):
            pattern, num = 0, 0
            for i in range(dim):
                variable = places[p, i]
                if variable < 0:
                    continue
                if (numbers[variable] + offsets[p, c, i] >= 0) != values[variable]:
                    pattern |= 1 << i
                    flipped[num] = variable
                    num += 1
            if not known[pattern]:
                cost[pattern] = _flip_cost(flipped, num, values, counts, first, occurrences, costs)
                known[pattern] = True
            result[p, c] = cost[pattern]
    return result
