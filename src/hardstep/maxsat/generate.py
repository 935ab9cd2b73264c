"""Uniform random k-SAT: clauses of k distinct variables, each negated with probability 1/2.

The clauses are a function of the arguments alone, on every machine and with every numpy: only the
raw 64-bit stream of PCG64 is used, which numpy keeps as it is, while `Generator.integers` may
change. The upper 53 bits of a draw choose a variable, its lowest bit the sign.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hardstep.errors import ConfigError
from hardstep.maxsat.formula import MAX_CLAUSES, MAX_VARIABLES, Formula
from hardstep.maxsat.sizes import check_formula
from hardstep.seeds import derive

# Clauses drawn at once, to bound the memory; the stream, so the result, does not depend on it.
_BLOCK = 1 << 18


def random_ksat(
    num_variables: int,
    ratio: float = 4.27,
    k: int = 3,
    seed: int = 0,
    *,
    planted: bool = False,
) -> Formula:
    """A formula of round(ratio * num_variables) clauses with k distinct variables each.

    Planted, the signs of each clause are uniform among those that `planted_assignment` of the
    same size and seed satisfies, so the formula is satisfiable; its variables are the same.

    Raises:
        ConfigError: A number is out of range.
    """
    _check(num_variables, ratio, k)
    num_clauses = round(ratio * num_variables)
    check_formula("random_ksat", num_clauses, k * num_clauses, "ask for fewer variables")
    literals = np.empty((num_clauses, k), dtype=np.int32)
    bits = np.random.PCG64(derive(seed, "maxsat clauses", num_variables, k))
    for first in range(0, num_clauses, _BLOCK):
        block = literals[first : first + _BLOCK]
        draws = bits.random_raw(block.size).reshape(block.shape)
        block[:] = 2 * _choose_distinct(draws, num_variables) + (draws & np.uint64(1)).astype(
            np.int32
        )
    if planted:
        _satisfy(literals, planted_assignment(num_variables, seed), seed)
    starts = np.arange(0, literals.size + 1, k, dtype=np.int64)
    weights = np.ones(num_clauses, dtype=np.int64)
    return Formula(num_variables, starts, literals.reshape(-1), weights)


def planted_assignment(num_variables: int, seed: int = 0) -> NDArray[np.bool_]:
    """The assignment that satisfies every planted formula of this size and seed."""
    bits = np.random.PCG64(derive(seed, "maxsat planted", num_variables))
    return (bits.random_raw(num_variables) & np.uint64(1)).astype(np.bool_)


def _choose_distinct(draws: NDArray[np.uint64], num_variables: int) -> NDArray[np.int32]:
    """Turn draws (rows, k) into k distinct variables per row, uniform over ordered choices.

    The j-th draw is a rank among the n - j variables not yet taken: it moves up by one for
    every taken variable at or below it, smallest first.
    """
    chosen = np.empty(draws.shape, dtype=np.int32)
    for j in range(draws.shape[1]):
        share = (draws[:, j] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # Exact but for a rounding of one part in 2**53, which could reach the bound itself.
        rank = np.minimum((share * (num_variables - j)).astype(np.int32), num_variables - j - 1)
        for taken in np.sort(chosen[:, :j], axis=1).T:
            rank += rank >= taken
        chosen[:, j] = rank
    return chosen


def _satisfy(literals: NDArray[np.int32], assignment: NDArray[np.bool_], seed: int) -> None:
    """Redraw the signs of falsified clauses until none is left, in place."""
    bits = np.random.PCG64(derive(seed, "maxsat planted signs", *literals.shape))
    pending = np.arange(len(literals))
    while pending.size:
        rows = literals[pending]
        broken = (assignment[rows >> 1] == (rows & 1).astype(np.bool_)).all(axis=1)
        pending, rows = pending[broken], rows[broken]
        signs = bits.random_raw(rows.size).reshape(rows.shape) & np.uint64(1)
        literals[pending] = (rows & ~1) | signs.astype(np.int32)


def _check(num_variables: int, ratio: float, k: int) -> None:
    if not 1 <= k <= num_variables <= MAX_VARIABLES:
        raise ConfigError(
            f"random_ksat: needs 1 <= k <= num_variables <= {MAX_VARIABLES}, "
            f"got k = {k}, num_variables = {num_variables}"
        )
    if not (math.isfinite(ratio) and 0 <= ratio * num_variables <= MAX_CLAUSES):
        raise ConfigError(
            f"random_ksat: ratio must give from 0 to {MAX_CLAUSES} clauses, got {ratio}"
        )
