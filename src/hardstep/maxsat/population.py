"""Costs of whole assignments, 64 at a time: one bit of a machine word for each.

Rivals that move every variable at once need them. A clause's word has a bit set where the clause
is falsified; words are added up in binary, one word per digit.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from hardstep.maxsat.checks import require
from hardstep.maxsat.deltas import compiled
from hardstep.maxsat.formula import Formula
from hardstep.maxsat.objective import plain_costs

_DIGITS = 32  # of a count of clauses


def population_costs(formula: Formula, assignments: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Falsified weight of each row of `assignments` (N, variables), in the unit of `MaxSat`."""
    require(
        assignments.dtype == np.bool_ and assignments.shape[1:] == (formula.num_variables,),
        f"assignments are rows of {formula.num_variables} booleans, "
        f"got {assignments.dtype} of shape {assignments.shape}",
    )
    costs = plain_costs(formula) if formula.num_clauses else np.ones(1)
    return _costs(formula.starts, formula.literals, assignments, costs)


@compiled()
def _packed(assignments: NDArray[np.bool_], first: int) -> NDArray[np.uint64]:
    """Rows `first` to `first + 63` as one word per variable."""
    num, variables = assignments.shape
    words = np.zeros(variables, np.uint64)
    for bit in range(min(64, num - first)):
        for v in range(variables):
            words[v] |= np.uint64(assignments[first + bit, v]) << np.uint64(bit)
    return words


@compiled()
def _falsified(
    first: int, last: int, literals: NDArray[np.int32], words: NDArray[np.uint64]
) -> np.uint64:
    """Where none of the literals holds."""
    result = ~np.uint64(0)
    for k in range(first, last):
        word = words[literals[k] >> 1]
        result &= word if literals[k] & 1 else ~word
    return result


@compiled(parallel=True)
def _costs(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    assignments: NDArray[np.bool_],
    costs: NDArray[np.float64],
) -> NDArray[np.float64]:
    num = assignments.shape[0]
    result = np.zeros(num, np.float64)
    one = np.uint64(1)
    for group in numba.prange((num + 63) // 64):
        words = _packed(assignments, 64 * group)
        members = min(64, num - 64 * group)
        digits = np.zeros(_DIGITS, np.uint64)
        for c in range(starts.size - 1):
            word = _falsified(starts[c], starts[c + 1], literals, words)
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
