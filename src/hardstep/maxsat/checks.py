"""What makes arrays a formula; bounds that kernels may rely on without looking again."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardstep.errors import DataError

# Literals, and clauses with a sign, are 31-bit numbers.
MAX_VARIABLES = MAX_CLAUSES = 1 << 30
MAX_TOTAL_WEIGHT = 2**63 - 1


def total(weights: NDArray[np.integer]) -> int:
    """The exact sum of weights from 0 to 2**64 - 1, even where no integer type holds it."""
    if int(weights.max(initial=0)) * weights.size <= MAX_TOTAL_WEIGHT:
        return int(weights.sum())
    wide = weights.astype(np.uint64)
    upper, lower = wide >> np.uint64(32), wide & np.uint64(2**32 - 1)
    return (int(upper.sum()) << 32) + int(lower.sum())


def check_clauses(
    num_variables: int, starts: ArrayLike, literals: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The arrays in the types of a formula, with every literal and every clause in range.

    Raises:
        DataError: Otherwise.
    """
    starts, literals = _integers("starts", starts), _integers("literals", literals)
    fits = 1 <= starts.size <= MAX_CLAUSES + 1 and starts[0] == 0 and starts[-1] == literals.size
    require(
        fits and not (starts[1:] < starts[:-1]).any(),
        f"starts must rise from 0 to {literals.size}, the number of literals, "
        f"over at most {MAX_CLAUSES} clauses",
    )
    low, high = int(literals.min(initial=0)), int(literals.max(initial=0))
    require(
        literals.size == 0 or (low >= 0 and high < 2 * num_variables),
        f"literals must be from 0 to {2 * num_variables - 1}, got from {low} to {high}",
    )
    return np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(literals, np.int32)


def check_weights(
    num_clauses: int, weights: ArrayLike, hard: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Weights with 0 for hard clauses, and the mask of these; the sum of weights fits int64.

    Raises:
        DataError: Otherwise.
    """
    mask = np.zeros(num_clauses, dtype=np.bool_) if hard is None else np.asarray(hard)
    require(
        mask.dtype == np.bool_ and mask.shape == (num_clauses,),
        f"hard must be {num_clauses} booleans, got {mask.dtype} of shape {mask.shape}",
    )
    given = _integers("weights", weights)
    require(given.size == num_clauses, f"{num_clauses} clauses have {given.size} weights")
    soft = np.where(mask, given.dtype.type(0), given)
    require(
        bool((mask | (soft >= 1)).all()) and total(soft) <= MAX_TOTAL_WEIGHT,
        f"weights must be at least 1 and sum to at most {MAX_TOTAL_WEIGHT}",
    )
    return soft.astype(np.int64, copy=False), mask


def _integers(name: str, values: ArrayLike) -> NDArray[np.integer]:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    require(
        array.ndim == 1 and np.issubdtype(array.dtype, np.integer),
        f"{name} must be a row of integers, got {array.dtype} of shape {array.shape}",
    )
    return array


def require(condition: bool, fault: str) -> None:
    """Raise DataError about the formula unless the condition holds."""
    if not condition:
        raise DataError(f"Formula: {fault}")
