"""A weighted CNF formula as compressed arrays, and what an assignment costs.

literal of variable v (from 0)    2v if positive, 2v + 1 if negated
clause c                          literals[starts[c]:starts[c + 1]]
cost of an assignment             weight of the soft clauses it falsifies, and apart from that
                                  the number of hard ones

The encoding packs into 32 bits, negates by `literal ^ 1`, and gives the variable by
`literal >> 1`. Weights are int64 and their sum is below 2**63, as the Max-SAT Evaluation asks,
so that every sum of weights is exact; floats would lose units above 2**53.

Clauses are held in normal form, in which every variable occurs in a clause at most once (see
`normal`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardstep.errors import DataError
from hardstep.maxsat.deltas import count_true
from hardstep.maxsat.index import count_occurrences, list_occurrences
from hardstep.maxsat.normal import normalize, row_starts
from hardstep.maxsat.pieces import run_in_pieces

# Literals, and clauses with a sign, are 31-bit numbers.
MAX_VARIABLES = MAX_CLAUSES = 1 << 30
MAX_TOTAL_WEIGHT = 2**63 - 1
_Item = TypeVar("_Item", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Formula:
    """Clauses over `num_variables` variables, held in normal form; see the module for the layout.

    Whatever clauses are given, the arrays hold no variable twice in a clause: repeated literals
    are dropped, and tautologies are removed and counted, since nothing can falsify them. An empty
    clause stays: every assignment falsifies it, so it is a constant part of the cost. Arrays are
    taken over, not copied, and read-only from here, since the index derived from them must stay
    true.

    Attributes:
        num_variables: Variables, whether they occur or not.
        starts: (clauses + 1,) where each clause starts in `literals`.
        literals: All clauses, one after another.
        weights: (clauses,) weight of each soft clause, at least 1; 0 for hard ones, which are
            counted and never summed.
        hard: (clauses,) which clauses must hold, or None if none must.
        num_tautologies: Clauses left out because they always hold.

    Raises:
        DataError: The arrays do not describe a formula.
    """

    num_variables: int
    starts: NDArray[np.int64]
    literals: NDArray[np.int32]
    weights: NDArray[np.int64]
    hard: NDArray[np.bool_] | None = None
    num_tautologies: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        require(
            0 <= self.num_variables <= MAX_VARIABLES,
            f"num_variables must be from 0 to {MAX_VARIABLES}, got {self.num_variables}",
        )
        starts, literals = check_clauses(self.num_variables, self.starts, self.literals)
        weights, hard = check_weights(starts.size - 1, self.weights, self.hard)
        starts, literals, kept = normalize(starts, literals)
        if kept is not None:
            object.__setattr__(self, "num_tautologies", kept.size - int(kept.sum()))
            weights, hard = weights[kept], hard[kept]
        object.__setattr__(self, "starts", _freeze(starts))
        object.__setattr__(self, "literals", _freeze(literals))
        object.__setattr__(self, "weights", _freeze(weights))
        object.__setattr__(self, "hard", _freeze(hard) if hard.any() else None)

    @classmethod
    def from_lists(
        cls,
        clauses: Sequence[Sequence[int]],
        num_variables: int | None = None,
        weights: ArrayLike | None = None,
        hard: ArrayLike | None = None,
    ) -> "Formula":
        """Build from signed variables counted from 1, as files write them.

        Left out, `num_variables` is the largest variable that occurs, and every weight is 1.
        """
        lengths = np.array([len(clause) for clause in clauses], dtype=np.int64)
        signed = _integers("literals", list(chain.from_iterable(clauses))).astype(np.int64)
        require(not (signed == 0).any(), "0 is not a literal; variables count from 1")
        variables = np.abs(signed) - 1
        if num_variables is None:
            num_variables = int(variables.max(initial=-1)) + 1
        literals = 2 * variables + (signed < 0)
        if weights is None:
            weights = np.ones(lengths.size, dtype=np.int64)
        return cls(num_variables, row_starts(lengths), literals, weights, hard)  # type: ignore[arg-type]

    def renumber(self, num_variables: int, literals: NDArray[np.int32]) -> "Formula":
        """The same clauses after their variables got other numbers, different ones for each."""
        formula = object.__new__(Formula)
        changed = {"num_variables": num_variables, "literals": _freeze(literals)}
        for name in ("starts", "weights", "hard", "num_tautologies"):
            object.__setattr__(formula, name, getattr(self, name))
        for name, value in changed.items():
            object.__setattr__(formula, name, value)
        return formula

    @property
    def num_clauses(self) -> int:
        """Clauses held, without tautologies."""
        return self.starts.size - 1

    @property
    def num_empty(self) -> int:
        """Clauses without a literal, which every assignment falsifies."""
        return int(np.count_nonzero(self.lengths == 0))

    @property
    def num_hard(self) -> int:
        """Clauses held that must be satisfied."""
        return 0 if self.hard is None else int(np.count_nonzero(self.hard))

    @property
    def total_weight(self) -> int:
        """Weight of all soft clauses held: the cost of falsifying every one."""
        return int(self.weights.sum())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(clauses,) number of literals of each clause."""
        return np.diff(self.starts)

    @cached_property
    def occurrence_starts(self) -> NDArray[np.int64]:
        """(variables + 1,) where the occurrences of each variable start."""
        return _freeze(count_occurrences(self.num_variables, self.literals))

    @cached_property
    def occurrences(self) -> NDArray[np.int32]:
        """Clauses by variable: 2c where it is positive in clause c, 2c + 1 where negated.

        Those of variable v, in increasing order, are at occurrence_starts[v:v + 2].
        """
        return _freeze(list_occurrences(self.starts, self.literals, self.occurrence_starts))

    def check_assignment(self, assignment: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The assignment, if it is one of this formula.

        Raises:
            DataError: It has another type or size.
        """
        assignment = np.asarray(assignment)
        require(
            assignment.dtype == np.bool_ and assignment.shape == (self.num_variables,),
            f"an assignment is {self.num_variables} booleans, "
            f"got {assignment.dtype} of shape {assignment.shape}",
        )
        return assignment

    def is_falsified(self, assignment: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(clauses,) which clauses hold no true literal."""
        assignment = self.check_assignment(assignment)
        counts = np.empty(self.num_clauses, np.int32)
        run_in_pieces(
            count_true, counts.size, self.literals.size,
            self.starts, self.literals, assignment, counts,
        )  # fmt: skip
        falsified: NDArray[np.bool_] = counts == 0
        return falsified

    def cost(self, assignment: NDArray[np.bool_]) -> tuple[int, int]:
        """Weight of the soft clauses and number of the hard clauses that do not hold."""
        falsified = self.is_falsified(assignment)
        weight = int(self.weights[falsified].sum())
        return weight, 0 if self.hard is None else int(np.count_nonzero(self.hard & falsified))

    def satisfied_share(self, assignment: NDArray[np.bool_]) -> float:
        """Satisfied clauses as a share of all, counting tautologies, each clause once."""
        total = self.num_clauses + self.num_tautologies
        broken = int(np.count_nonzero(self.is_falsified(assignment)))
        return (total - broken) / total if total else 1.0


def _freeze(array: NDArray[_Item]) -> NDArray[_Item]:
    array = array.view()
    array.flags.writeable = False
    return array


# -- what makes arrays a formula --------------------------------------------------------------


def sum_exactly(weights: NDArray[np.integer]) -> int:
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
        bool((mask | (soft >= 1)).all()) and sum_exactly(soft) <= MAX_TOTAL_WEIGHT,
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
