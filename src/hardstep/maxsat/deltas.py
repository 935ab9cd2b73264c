"""What flipping a few variables costs: exact differences from the clauses they occur in.

A candidate moves the numbers of one particle; only those that change sign flip a variable. Three
passes give the cost of every candidate:

    count_true         literals that hold, per clause
    flip_costs         what flipping one variable alone would cost, from its clauses
    candidate_costs    sums of these over what a candidate flips, corrected for the clauses that
                       hold several variables of one particle

Which clauses those are depends on the formula and the particles only and is listed once
(`index.list_shared`); in a large random formula there are next to none. Each function does a
range of its output, which nothing else writes, for `pieces.run_in_pieces`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardstep._compiled import jit

_DIGITS = 32  # of a count of clauses


@jit
def count_true(
    first_clause: int,
    last_clause: int,
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    values: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
) -> None:
    """Write how many literals of each clause hold into `counts`."""
    for c in range(first_clause, last_clause):
        count = 0
        for k in range(starts[c], starts[c + 1]):
            literal = literals[k]
            count += values[literal >> 1] != (literal & 1)
        counts[c] = count


@jit
def flip_costs(
    first_variable: int,
    last_variable: int,
    values: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    """Write what flipping each variable alone would cost into `result`, (variables,).

    Args:
        first_variable: Of those to do.
        last_variable: Where to stop.
        values: The assignment.
        counts: True literals per clause.
        first: Where each variable's occurrences start.
        occurrences: Clauses by variable, 2c or 2c + 1 where it is negated.
        costs: Of a falsified clause; a single one if they are all the same.
        result: To be filled.
    """
    same = costs.size == 1
    for v in range(first_variable, last_variable):
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


@jit
def _correction(
    clause: int,
    variables: NDArray[np.int64],
    numbers: NDArray[np.floating[Any]],
    offset: NDArray[np.floating[Any]],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    count: np.int64,
    cost: float,
) -> float:
    """What a shared clause really changes by, minus what its variables would change it alone.

    The particle's variables are looked up in the clause, not the other way round: a clause may
    hold a million of them.
    """
    change, alone = 0, 0
    for i in range(variables.size):
        variable = variables[i]
        if variable < 0:
            continue
        value = numbers[variable] >= 0
        if (numbers[variable] + offset[i] >= 0) == value:
            continue
        its = occurrences[first[variable] : first[variable + 1]]
        k = np.searchsorted(its, 2 * clause)
        if k < its.size and its[k] >> 1 == clause:
            holds = value != (its[k] & 1)
            change += -1 if holds else 1
            alone += (count == 1 and holds) - (count == 0)
    really = np.int64(count + change == 0) - np.int64(count == 0)
    return float(cost * (really - alone))


@jit
def candidate_costs(
    first_row: int,
    last_row: int,
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    offsets: NDArray[np.floating[Any]],
    numbers: NDArray[np.floating[Any]],
    flips: NDArray[np.float64],
    shared: tuple[NDArray[np.int64], NDArray[np.int32]],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    counts: NDArray[np.integer[Any]],
    costs: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    """Write differences to the current cost into `result`, (rows, candidates).

    Args:
        first_row: Of those to do.
        last_row: Where to stop.
        rows: Particles asked about.
        places: (particles, d) variables of each particle, −1 on padding.
        offsets: (rows, candidates, d) how far a candidate moves them.
        numbers: The current point; a variable is true where its number is at least 0.
        flips: What flipping each variable alone would cost.
        shared: What `list_shared` found.
        first: Where each variable's occurrences start.
        occurrences: Clauses by variable, 2c or 2c + 1 where it is negated.
        counts: True literals per clause.
        costs: Of a falsified clause; a single one if they are all the same.
        result: To be filled.
    """
    _, num_candidates, dim = offsets.shape
    first_shared, listed = shared
    for row in range(first_row, last_row):
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
            for k in range(first_shared[particle], first_shared[particle + 1]):
                clause = listed[k]
                total += _correction(
                    clause, places[particle], numbers, offsets[row, c], first, occurrences,
                    np.int64(counts[clause]), costs[clause] if costs.size > 1 else costs[0],
                )  # fmt: skip
            result[row, c] = total


@jit
def _pack(assignments: NDArray[np.bool_], first: int) -> NDArray[np.uint64]:
    """Rows `first` to `first + 63` as one word per variable."""
    num, variables = assignments.shape
    words = np.zeros(variables, np.uint64)
    for bit in range(min(64, num - first)):
        for v in range(variables):
            words[v] |= np.uint64(assignments[first + bit, v]) << np.uint64(bit)
    return words


@jit
def _find_falsified(
    first: int, last: int, literals: NDArray[np.int32], words: NDArray[np.uint64]
) -> np.uint64:
    """Where none of the literals holds."""
    result = ~np.uint64(0)
    for k in range(first, last):
        word = words[literals[k] >> 1]
        result &= word if literals[k] & 1 else ~word
    return result


@jit
def assignment_costs(
    first_group: int,
    last_group: int,
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    assignments: NDArray[np.bool_],
    costs: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    """Add the costs of whole assignments (N, variables) to `result`, (N,), a group of 64 at a time.

    For methods that move every variable at once.

    64 of them are one machine word per variable. A clause's word has a bit set where the clause is
    falsified; words are added up in binary, one word per digit.
    """
    num = assignments.shape[0]
    one = np.uint64(1)
    for group in range(first_group, last_group):
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
