"""A weighted CNF formula as compressed arrays, and what an assignment costs.

literal of variable v (from 0)    2v if positive, 2v + 1 if negated
clause c                          literals[starts[c]:starts[c + 1]]
cost of an assignment             weight of the soft clauses it falsifies, and apart from that
                                  the number of hard ones

The encoding packs into 32 bits, negates by `literal ^ 1`, and gives the variable by
`literal >> 1`. Weights are int64 and their sum is below 2**63, as the Max-SAT Evaluation asks,
so that every sum of weights is exact; floats would lose units above 2**53.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardstep.maxsat.checks import MAX_VARIABLES, check_clauses, check_weights, require
from hardstep.maxsat.normal import normalise, row_starts

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
        starts, literals, kept = normalise(starts, literals)
        if kept is not None:
            object.__setattr__(self, "num_tautologies", kept.size - int(kept.sum()))
            weights, hard = weights[kept], hard[kept]
        object.__setattr__(self, "starts", _frozen(starts))
        object.__setattr__(self, "literals", _frozen(literals))
        object.__setattr__(self, "weights", _frozen(weights))
        object.__setattr__(self, "hard", _frozen(hard) if hard.any() else None)

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
        signed = np.array(list(chain.from_iterable(clauses)), dtype=np.int64)
        require(not (signed == 0).any(), "0 is not a literal; variables count from 1")
        variables = np.abs(signed) - 1
        if num_variables is None:
            num_variables = int(variables.max(initial=-1)) + 1
        literals = 2 * variables + (signed < 0)
        if weights is None:
            weights = np.ones(lengths.size, dtype=np.int64)
        return cls(num_variables, row_starts(lengths), literals, weights, hard)  # type: ignore[arg-type]

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
        counts = np.bincount(self.literals >> 1, minlength=self.num_variables)
        return _frozen(row_starts(counts))

    @cached_property
    def occurrences(self) -> NDArray[np.int32]:
        """Clauses by variable: 2c where it is positive in clause c, 2c + 1 where negated.

        Those of variable v, in increasing order, are at occurrence_starts[v:v + 2].
        """
        # One plain sort of (variable, clause, sign) packed into 61 bits: numpy's stable
        # argsort of the variables takes several times as long and twice the memory.
        keys = np.repeat(np.arange(0, 2 * self.num_clauses, 2), self.lengths)
        keys |= self.literals & 1
        keys |= (self.literals >> 1).astype(np.int64) << 31
        keys.sort()
        keys &= 2**31 - 1
        return _frozen(keys.astype(np.int32))

    def is_falsified(self, assignment: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(clauses,) which clauses hold no true literal."""
        assignment = np.asarray(assignment)
        require(
            assignment.dtype == np.bool_ and assignment.shape == (self.num_variables,),
            f"an assignment is {self.num_variables} booleans, "
            f"got {assignment.dtype} of shape {assignment.shape}",
        )
        holds = assignment[self.literals >> 1]
        holds ^= (self.literals & 1).astype(np.bool_)
        falsified = np.ones(self.num_clauses, dtype=np.bool_)
        # reduceat would take the literal after an empty clause for its own.
        filled = np.flatnonzero(self.lengths)
        if filled.size:
            falsified[filled] = ~np.logical_or.reduceat(holds, self.starts[filled])
        return falsified

    def falsified(self, assignment: NDArray[np.bool_]) -> tuple[int, int]:
        """Weight of the soft clauses and number of the hard clauses that do not hold."""
        falsified = self.is_falsified(assignment)
        weight = int(self.weights[falsified].sum())
        return weight, 0 if self.hard is None else int(np.count_nonzero(self.hard & falsified))

    def satisfied_share(self, assignment: NDArray[np.bool_]) -> float:
        """Satisfied clauses as a share of all, counting tautologies, each clause once."""
        total = self.num_clauses + self.num_tautologies
        broken = int(np.count_nonzero(self.is_falsified(assignment)))
        return (total - broken) / total if total else 1.0


def _frozen(array: NDArray[_Item]) -> NDArray[_Item]:
    array = array.view()
    array.flags.writeable = False
    return array
