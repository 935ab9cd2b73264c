"""Entropic optimal transport with both marginals enforced, and its relaxed updates.

Problem, and what one iteration does to the potentials (appendix on the Sinkhorn solver):

min_T  <C, T> + ε Σ T (log T − 1)   with T1 = a, Tᵀ1 = b,   a = 1/P, b = 1/V

f_i = (1 − ϖ) f_i + ϖ ε (log a_i − LSE_v((g_v − C_iv)/ε))
g_v = (1 − ϖ) g_v + ϖ ε (log b_v − LSE_i((f_i − C_iv)/ε))
"""

import math
from dataclasses import dataclass

from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.solvers.acceleration import Anderson, Relaxed, Step
from hardstep.solvers.base import Plan, Potentials, Solver
from hardstep.solvers.dual import Program, Stopping

_RELAXATION_RANGE = (0.5, 1.95)


@dataclass(frozen=True, slots=True)
class Sinkhorn(Solver):
    """Every vertex receives the same mass; for many particles that should not all agree.

    Stops once a row update leaves log(q_v/b_v), q the column sums, with a spread (max − min) of
    at most `tolerance` (or what the dtype resolves, see `dual.Stopping`), so that
    |log(q_v/b_v)| <= tolerance for every vertex; `max_iterations` column updates without that
    give `Plan.converged = False`. The last update is an exact one of the rows. A warm start uses
    the column potential of the previous plan.

    Small temperatures converge slowly. `relaxation` is ϖ; an entry whose move is too large to
    overshoot safely takes the plain update, so no value diverges. `anderson` > 0 mixes that many
    past changes of g instead, falling back to the plain update where this does not help. The
    two exclude each other.
    """

    relaxation: float = 1.0
    max_iterations: int = 500
    tolerance: float = 1e-6
    anderson: int = 0

    def __post_init__(self) -> None:
        low, high = _RELAXATION_RANGE
        if not low <= self.relaxation <= high:
            raise ConfigError(
                f"Sinkhorn: relaxation must lie in [{low}, {high}], got {self.relaxation}"
            )
        if self.anderson < 0:
            raise ConfigError(
                f"Sinkhorn: anderson must be >= 0 past changes (0 is off), got {self.anderson}"
            )
        if self.anderson and self.relaxation != 1.0:
            raise ConfigError(
                f"Sinkhorn: anderson = {self.anderson} needs relaxation = 1.0, got "
                f"{self.relaxation}; set one of the two"
            )
        Stopping(self.max_iterations, self.tolerance).check("Sinkhorn")

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan and its potentials, T = exp((f + g − C)/ε).

        Raises:
            ConfigError: costs, temperature or warm potential out of range.
        """
        step: Step = Anderson(self.anderson) if self.anderson else Relaxed(self.relaxation)
        stopping = Stopping(self.max_iterations, self.tolerance)
        return Program("Sinkhorn", math.inf, stopping).solve(costs, temperature, warm, step)
