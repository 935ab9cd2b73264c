"""Costs as every solver reads them: checked, then measured from each row's best vertex.

    S_iv = (C_iv − min_v C_iv) / ε

A plan does not change when a row of costs is shifted by a constant, so working with S is
exact. Subtracting before dividing keeps small differences under a large offset.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.errors import ConfigError

_DTYPES = (torch.float32, torch.float64)
FEW_COLUMNS = 4


class ScaledCosts(NamedTuple):
    """Costs above the row minimum, in units of the temperature."""

    excess: Tensor  # S, (P, V), finite and >= 0, one zero per row at least
    minimum: Tensor  # min_v C, (P, 1), in the units of the costs
    temperature: float  # ε, kept within the range of the dtype


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
        raise ConfigError(_nonfinite_message(owner, costs))


def scale(owner: str, costs: Tensor, temperature: float) -> ScaledCosts:
    """The checked costs, relative to each row's minimum and in units of the temperature.

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


def row_sums(matrix: Tensor) -> Tensor:
    """Σ over columns, (P, 1); torch's own sum is six times slower over three columns."""
    if matrix.shape[1] > FEW_COLUMNS:
        return matrix.sum(dim=1, keepdim=True)
    first, *others = matrix.unbind(1)
    return sum(others, start=first)[:, None]


def _nonfinite_message(owner: str, costs: Tensor) -> str:
    places = (~torch.isfinite(costs)).nonzero()
    row, column = places[0].tolist()
    return (
        f"{owner}: costs must be finite, got {len(places)} that are not, the first "
        f"{costs[row, column].item()} at (particle, vertex) = {(row, column)}; "
        "replace such losses before solving"
    )
