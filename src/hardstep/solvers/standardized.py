"""Costs measured in units of their spread, so that the temperature is a pure number.

    C ← (C − row mean) / s,   s = mean over rows of max_v |C_iv − row mean|

Any loss and its multiples then give the same plan: for black boxes whose scale is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from hardstep.solvers.base import Plan, Potentials, Solver, check_problem


@dataclass(frozen=True, slots=True)
class Standardized(Solver):
    """Any solver, made blind to the scale of the losses.

    Every step then has about the same length, however flat the loss has become, so it wants
    a step radius that decays.
    """

    inner: Solver

    def bind(self, block_sizes: Sequence[int]) -> "Standardized":
        """This solver around a bound one."""
        return replace(self, inner=self.inner.bind(block_sizes))

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The inner plan of standardized costs; constant costs stay constant."""
        check_problem("Standardized", costs, temperature)
        halved = costs / 2  # the range of huge costs would overflow
        shifted = halved - halved.amin(dim=1, keepdim=True)
        largest = shifted.amax()
        if not bool(largest > 0):
            return self.inner.solve(shifted, temperature, warm)
        unit = shifted / largest
        centered = unit - unit.mean(dim=1, keepdim=True)
        spread = centered.abs().amax(dim=1).mean()
        return self.inner.solve(centered / spread, temperature, warm)
