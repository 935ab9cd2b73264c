"""The solver protocol: a cost matrix in, a transport plan out.

Rows are particles, columns are polytope vertices. Every solver returns rows that sum to the
row mass 1/P (a solver that stopped early may be off; the step divides by the realised sums).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Potentials(NamedTuple):
    """Dual potentials of a solve, kept to start the next one close to its optimum."""

    row: Tensor  # f, (P,)
    column: Tensor  # g, (V,)


class Plan(NamedTuple):
    """A transport plan and how it was reached."""

    weights: Tensor  # T, (P, V), rows sum to 1/P
    potentials: Potentials | None = None
    iterations: int = 0
    converged: bool = True


class Solver(ABC):
    """Turns costs (P, V) into a plan at a temperature."""

    @abstractmethod
    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan; `warm` holds the potentials of the previous solve, where there was one."""

    def bind(self, block_sizes: Sequence[int]) -> "Solver":
        """This solver for particles that come in blocks (one per tensor) of these sizes."""
        del block_sizes  # only `Blockwise` tells blocks apart
        return self
