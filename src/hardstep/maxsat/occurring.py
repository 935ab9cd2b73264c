"""A formula without the variables that no clause uses: they cost a search nothing.

A header may announce a billion variables for three clauses. What is searched has one variable for
each that occurs, in the same order; in the answer the others are false.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardstep._compiled import jit
from hardstep.maxsat.formula import Formula
from hardstep.maxsat.pieces import run_in_turn

# More variables than this for each literal are found by sorting the literals, not by a table.
_TABLE_SHARE = 4


@dataclass(frozen=True)
class Occurring:
    """A formula over the variables that occur, and how to get to all of them and back."""

    formula: Formula
    num_variables: int  # of the formula that was given
    variables: NDArray[np.int32] | None  # the number that each had there; None if all occur

    def select(self, assignment: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The values of the variables that occur."""
        return assignment if self.variables is None else assignment[self.variables]

    def spread(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """An assignment of all variables; those that do not occur are false."""
        if self.variables is None:
            return values
        # Zeros take no memory before they are written.
        assignment = np.zeros(self.num_variables, np.bool_)
        assignment[self.variables] = values
        return assignment


def keep_occurring(formula: Formula) -> Occurring:
    """Renumber the variables that occur; the first stays if none does, so that there is one."""
    num, literals = formula.num_variables, formula.literals
    if num <= 1:
        return Occurring(formula, num, None)
    if num > _TABLE_SHARE * literals.size:
        variables, places = np.unique(literals >> 1, return_inverse=True)
        if variables.size == 0:
            variables = np.zeros(1, np.int32)
        renumbered = (2 * places + (literals & 1)).astype(np.int32)
        return Occurring(formula.renumber(variables.size, renumbered), num, variables)
    numbers = np.zeros(num, np.int32)
    run_in_turn(_mark, literals.size, literals.size, literals, numbers)
    variables = np.flatnonzero(numbers).astype(np.int32)
    if variables.size == num:
        return Occurring(formula, num, None)
    numbers[variables] = np.arange(variables.size, dtype=np.int32)
    renumbered = np.empty_like(literals)
    run_in_turn(_renumber, literals.size, literals.size, literals, numbers, renumbered)
    return Occurring(formula.renumber(variables.size, renumbered), num, variables)


@jit
def _mark(first: int, last: int, literals: NDArray[np.int32], marks: NDArray[np.int32]) -> None:
    for k in range(first, last):
        marks[literals[k] >> 1] = 1


@jit
def _renumber(
    first: int,
    last: int,
    literals: NDArray[np.int32],
    numbers: NDArray[np.int32],
    result: NDArray[np.int32],
) -> None:
    for k in range(first, last):
        result[k] = 2 * numbers[literals[k] >> 1] + (literals[k] & 1)
