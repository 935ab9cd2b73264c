"""Transport whose column sums are drawn to uniform by a penalty (Theorem kl-softmax-endpoints).

    min_T  <C, T> + ε Σ T (log T − 1) + λ KL(Tᵀ1 ‖ b)   with T1 = a,   a = 1/P, b = 1/V

λ = 0 is the softmax of each row, λ = ∞ is Sinkhorn, and KL(Tᵀ1 ‖ b) never rises with λ.
"""

from dataclasses import dataclass

from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.solvers.base import Plan, Potentials, Solver
from hardstep.solvers.sinkhorn import DualAscent, Relaxed


@dataclass(frozen=True, slots=True)
class Penalized(Solver):
    """Anything between `RowSoftmax` and `Sinkhorn`: some spread over vertices, not forced.

    `column_penalty` is λ, in the units of the costs; 0 and infinity are allowed. The alternating
    updates (`sinkhorn.DualAscent`) stop once one of them changes g/ε by a spread (max − min over
    vertices) of at most `tolerance`, or after `max_iterations`; `Plan.converged` says which. Rows
    are exact either way. A warm start uses the column potential of the previous plan.
    """

    column_penalty: float
    max_iterations: int = 500
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if not self.column_penalty >= 0:
            raise ConfigError(f"Penalized: column_penalty must be >= 0, got {self.column_penalty}")
        self._ascent()

    def _ascent(self) -> DualAscent:
        limits = (self.max_iterations, self.tolerance)
        return DualAscent("Penalized", self.column_penalty, *limits)

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan and its potentials, T = exp((f + g − C)/ε).

        Raises:
            ConfigError: costs, temperature or warm potential out of range.
        """
        return self._ascent().solve(costs, temperature, warm, Relaxed())
