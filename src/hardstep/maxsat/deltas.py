"""What flipping a few variables costs: exact differences from the clauses they occur in.

A candidate moves the numbers of one particle; only those that change sign flip a variable. Three
passes give the cost of every candidate:

    count_true         literals that hold, per clause
    flip_costs         what flipping one variable alone would cost, from its clauses
    candidate_costs    sums of these over what a candidate flips, corrected for the clauses that
                       hold several variables of one particle

Which clauses those are depends on the formula and the particles only and is listed once
(`shared_clauses`); in a large random formula there are next to none.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from hardstep.maxsat.compiled import jit

_DIGITS = 32  # of a count of clauses


@jit(parallel=True)
def count_true(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    values: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
) -> None:
    """Write how many literals of each clause hold into `counts`."""
    for c in numba.prange(counts.size):
        count = 0
        for k in range(starts[c], starts[c + 1]):
            literal = literals[k]
            count += values[literal >> 1] != (literal & 1)
        counts[c] = count


@jit(parallel=True)
def flip_costs(
    values: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """What flipping each variable alone would cost, (variables,).

    Args:
        values: The assignment.
        counts: True literals per clause.
        first: Where each variable's occurrences start.
        occurrences: Clauses by variable, 2c or 2c + 1 where it is negated.
        costs: Of a falsified clause; a single one if they are all the same.
    """
    result = np.empty(values.size, np.float64)
    same = costs.size == 1
    for v in numba.prange(values.size):
        value = np.int32(values[v])
        if same:  # whole numbers, and no branch to mispredict: twice as fast
            gained = np.int32(0)
            for k in range(first[v], first[v + 1]):
                occurrence = occurrences[k]
                count = np.int32(counts[occurrence >> 1])
                holds = value ^ (occurrence & 1)
                gained += np.int32(count == 0) - (np.int32(count == 1) & holds)
            result[v] = -gained * costs[0]
        else:
            total = 0.0
            for k in range(first[v], first[v + 1]):
                clause, holds = occurrences[k] >> 1, value ^ (occurrences[k] & 1)
                if counts[clause] == 0:
                    total -= costs[clause]
                elif counts[clause] == 1 and holds:
                    total += costs[clause]
            result[v] = total
    return result


@jit()
def shared_clauses(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    particle_of: NDArray[np.int32],
    num_particles: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Clauses that hold several variables of one particle: where each particle's start, and all.

    A clause that does so for two particles is listed under both.
    """
    first = np.zeros(num_particles + 1, np.int64)
    listed = np.empty(0, np.int32)
    for fill in (False, True):
        if fill:
            first = np.concatenate((np.zeros(1, np.int64), np.cumsum(first[:-1])))
            listed = np.empty(first[-1], np.int32)
            following = first[:-1].copy()
        for c in range(starts.size - 1):
            for k in range(starts[c], starts[c + 1]):
                particle = particle_of[literals[k] >> 1]
                before, after = False, False
                for other in range(starts[c], starts[c + 1]):
                    if particle_of[literals[other] >> 1] == particle:
                        before |= other < k
                        after |= other > k
                if after and not before:  # once, at the first of them
                    if fill:
                        listed[following[particle]] = c
                        following[particle] += 1
                    else:
                        first[particle] += 1
    return first, listed


@jit()
def _correction(
    clause: int,
    particle: int,
    numbers: NDArray[np.floating[Any]],
    offset: NDArray[np.floating[Any]],
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    counts: NDArray[np.integer[Any]],
    costs: NDArray[np.float64],
) -> float:
    """What a shared clause really changes by, minus what its variables would change it alone."""
    cost = costs[clause] if costs.size > 1 else costs[0]
    count, change, alone = np.int64(counts[clause]), 0, 0
    for k in range(starts[clause], starts[clause + 1]):
        variable, negated = literals[k] >> 1, literals[k] & 1
        for i in range(places.shape[1]):
            if places[particle, i] != variable:
                continue
            value = numbers[variable] >= 0
            if (numbers[variable] + offset[i] >= 0) != value:
                holds = value != negated
                change += -1 if holds else 1
                alone += (count == 1 and holds) - (count == 0)
    really = np.int64(count + change == 0) - np.int64(count == 0)
    return float(cost * (really - alone))


@jit(parallel=True)
def candidate_costs(
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    offsets: NDArray[np.floating[Any]],
    numbers: NDArray[np.floating[Any]],
    flips: NDArray[np.float64],
    shared: tuple[NDArray[np.int64], NDArray[np.int32]],
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    counts: NDArray[np.integer[Any]],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Differences to the current cost, (rows, candidates).

    Args:
        rows: Particles asked about.
        places: (particles, d) variables of each particle, −1 on padding.
        offsets: (rows, candidates, d) how far a candidate moves them.
        numbers: The current point; a variable is true where its number is at least 0.
        flips: What flipping each variable alone would cost.
        shared: What `shared_clauses` found.
        starts: Where each clause starts.
        literals: All clauses, one after another.
        counts: True literals per clause.
        costs: Of a falsified clause; a single one if they are all the same.
    """
    num_rows, num_candidates, dim = offsets.shape
    first, listed = shared
    result = np.empty((num_rows, num_candidates), np.float64)
    for row in numba.prange(num_rows):
        particle = rows[row]
        for c in range(num_candidates):
            total = 0.0
            for i in range(dim):
                variable = places[particle, i]
                if variable < 0:
                    continue
                number = numbers[variable]
                if (number + offsets[row, c, i] >= 0) != (number >= 0):
                    total += flips[variable]
            for k in range(first[particle], first[particle + 1]):
                total += _correction(
                    listed[k], particle, numbers, offsets[row, c], places,
                    starts, literals, counts, costs,
                )  # fmt: skip
            result[row, c] = total
    return result


@jit()
def _pack(assignments: NDArray[np.bool_], first: int) -> NDArray[np.uint64]:
    """Rows `first` to `first + 63` as one word per variable."""
    num, variables = assignments.shape
    words = np.zeros(variables, np.uint64)
    for bit in range(min(64, num - first)):
        for v in range(variables):
            words[v] |= np.uint64(assignments[first + bit, v]) << np.uint64(bit)
    return words


@jit()
def _find_falsified(
    first: int, last: int, literals: NDArray[np.int32], words: NDArray[np.uint64]
) -> np.uint64:
    """Where none of the literals holds."""
    result = ~np.uint64(0)
    for k in range(first, last):
        word = words[literals[k] >> 1]
        result &= word if literals[k] & 1 else ~word
    return result


@jit(parallel=True)
def assignment_costs(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    assignments: NDArray[np.bool_],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Costs of whole assignments (N, variables), for methods that move every variable at once.

    64 of them are one machine word per variable. A clause's word has a bit set where the clause is
    falsified; words are added up in binary, one word per digit.
    """
    num = assignments.shape[0]
    result = np.zeros(num, np.float64)
    one = np.uint64(1)
    for group in numba.prange((num + 63) // 64):
        words = _pack(assignments, 64 * group)
        members = min(64, num - 64 * group)
        digits = np.zeros(_DIGITS, np.uint64)
        for c in range(starts.size - 1):
            word = _find_falsified(starts[c], starts[c + 1], literals, words)
            if costs.size > 1:
                for bit in range(members):
                    if (word >> np.uint64(bit)) & one:
                        result[64 * group + bit] += costs[c]
                continue
            digit = 0
            while word:
                carry = digits[digit] & word
                digits[digit] ^= word
                word = carry
                digit += 1
        for bit in range(members):
            for digit in range(_DIGITS):
                if (digits[digit] >> np.uint64(bit)) & one:
                    result[64 * group + bit] += costs[0] * 2.0**digit
    return result
