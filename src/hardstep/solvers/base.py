"""What every solver shares: costs in, a transport plan out.

Cost rows are particles, columns are polytope vertices. Every plan has rows that sum to the
row mass 1/P (a solver that stopped early may be off; the step divides by the realized sums).

Solvers read costs measured from each row's best vertex:

    S_iv = (C_iv − min_v C_iv) / ε

A plan does not change when a cost row is shifted by a constant, so working with S is exact.
Subtracting before dividing keeps small differences under a large offset.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.errors import ConfigError

_DTYPES = (torch.float32, torch.float64)
_FEW_COLUMNS = 4


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

    @property
    def column_violation(self) -> float:
        """How far the column sums q are from uniform, b = 1/V: KL(q ‖ b), the paper's measure.

        Summed as Σ b ((1 + r) log(1 + r) − r) with r = q/b − 1, whose terms are never negative,
        so that a violation far below the rounding of q log(q/b) keeps its digits.
        """
        columns = self.weights.double().sum(dim=0)
        off = columns * (len(columns) / columns.sum()) - 1
        return float((torch.special.xlog1py(1 + off, off) - off).mean())


class Solver(ABC):
    """Turns costs (P, V) into a plan at a temperature."""

    @abstractmethod
    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan; `warm` holds the potentials of the previous solve, where there was one."""

    def bind(self, block_sizes: Sequence[int]) -> "Solver":
        """This solver for particles that come in blocks (one per tensor) of these sizes."""
        del block_sizes  # only `Blockwise` tells blocks apart
        return self


class ScaledCosts(NamedTuple):
    """Costs above the row minimum, in units of the temperature."""

    excess: Tensor  # S, (P, V), finite and >= 0, one zero per row at least
    minimum: Tensor  # min_v C, (P, 1), in the units of the costs
    temperature: float  # ε, kept within the range of the dtype


def scale(owner: str, costs: Tensor, temperature: float) -> ScaledCosts:
    """The costs, relative to each row's minimum and in units of the temperature.

    Entries are capped at 1/64 of the largest number of the dtype, so that sums of an entry
    and potentials of the same size stay finite.

    Raises:
        ConfigError: see `check_problem`.
    """
    check_problem(owner, costs, temperature)
    limits = torch.finfo(costs.dtype)
    minimum = costs.amin(dim=1, keepdim=True)
    # Outside the range of the dtype it would become 0 or infinite.
    temperature = min(max(temperature, limits.tiny), limits.max)
    excess = (costs - minimum).div_(temperature).clamp_(max=limits.max / 64)
    return ScaledCosts(excess, minimum, temperature)


def check_problem(owner: str, costs: Tensor, temperature: float) -> None:
    """Refuse costs or a temperature no solver can use.

    Raises:
        ConfigError: costs not (P, V), empty, not float32 or float64, or not finite;
            temperature not a positive finite number.
    """
    if costs.ndim != 2 or costs.numel() == 0:
        shape = tuple(costs.shape)
        raise ConfigError(f"{owner}: costs must be (particles, vertices), not empty, got {shape}")
    if costs.dtype not in _DTYPES:
        raise ConfigError(
            f"{owner}: costs must be float32 or float64, got {costs.dtype}; "
            "convert them with costs.float()"
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"{owner}: temperature must be finite and > 0, got {temperature}")
    lowest, highest = costs.aminmax()  # NaN passes through, so two numbers tell about all
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        places = (~torch.isfinite(costs)).nonzero()
        row, column = places[0].tolist()
        raise ConfigError(
            f"{owner}: costs must be finite, got {len(places)} that are not, the first "
            f"{costs[row, column].item()} at (particle, vertex) = {(row, column)}; "
            "replace such losses before solving"
        )


def row_sums(matrix: Tensor) -> Tensor:
    """Σ over columns, (P, 1); torch's own sum is six times slower over three columns."""
    if matrix.shape[1] > _FEW_COLUMNS:
        return matrix.sum(dim=1, keepdim=True)
    first, *others = matrix.unbind(1)
    return sum(others, start=first)[:, None]
