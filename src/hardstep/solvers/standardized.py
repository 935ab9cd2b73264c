"""Costs measured in units of their own spread, so that the temperature is a pure number.

    C_iv ← (C_iv − row mean) / s      Standardized: s = mean over rows of max_v |C_iv − row mean|
    C_iv ← (C_iv − row mean) / s_i    StandardizedRows: s_i = max(σ_i, mean over rows of σ / 100),
                                      σ_i² = mean_v (C_iv − row mean)²

Any loss and its multiples then give the same plan: for black boxes whose scale is unknown, and for
networks in which some units change the loss many times as much as others.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from hardstep.solvers.base import Plan, Potentials, Solver
from hardstep.solvers.costs import check_problem

FLOOR = 0.01  # of the mean spread: what differs by less may be rounding, and is not blown up


@dataclass(frozen=True, slots=True)
class _InUnits(Solver):
    """Any solver, given costs in other units."""

    inner: Solver

    def bind(self, block_sizes: Sequence[int]) -> Self:
        """This solver around a bound one."""
        return replace(self, inner=self.inner.bind(block_sizes))

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The inner plan of standardized costs; constant costs stay constant."""
        check_problem(type(self).__name__, costs, temperature)
        halved = costs / 2  # the range of huge costs would overflow
        shifted = halved - halved.amin(dim=1, keepdim=True)
        largest = shifted.amax()
        if not bool(largest > 0):
            return self.inner.solve(shifted, temperature, warm)
        unit = shifted / largest
        centred = unit - unit.mean(dim=1, keepdim=True)
        return self.inner.solve(centred / self._unit(centred), temperature, warm)

    @abstractmethod
    def _unit(self, centred: Tensor) -> Tensor:
        """What centred costs, not all of them zero, are divided by."""


class Standardized(_InUnits):
    """Any solver, made blind to the scale of the losses.

    Every step then has about the same length, however flat the loss has become, so it wants
    a step radius that decays.
    """

    __slots__ = ()

    def _unit(self, centred: Tensor) -> Tensor:
        return centred.abs().amax(dim=1).mean()


class StandardizedRows(_InUnits):
    """Any solver, made blind to how much each particle matters.

    Every particle goes about equally far, along a mean of its better directions, where a cold
    temperature would send it to the best one alone and a warm one leave it where it is if it
    matters little. Prefer it where a step moves few particles and each should count; like
    `Standardized` it wants a step radius that decays. Particles that matter less than a hundredth
    of the mean go less far.
    """

    __slots__ = ()

    def _unit(self, centred: Tensor) -> Tensor:
        spread = centred.square().mean(dim=1, keepdim=True).sqrt()
        return spread.clamp_min(FLOOR * spread.mean())
