"""Where along a direction the loss is measured, and the jitter of that distance.

Probes sit at fractions ξ_k = k/(K + 1) of the probe radius, so half of it for K = 1. Jitter
multiplies a radius by 1 + η with η drawn from the bump density

    q(η) ∝ exp(−1 / (1 − (η/η_max)²)),   |η| < η_max,

a mollifier: smooth with all derivatives zero at its ends, which is what the smoothed loss
needs to be differentiable everywhere.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hardstep.errors import ConfigError


def probe_fractions(num_probes: int) -> Tensor:
    """k/(K + 1) for k = 1 … K, float64."""
    return torch.arange(1, num_probes + 1, dtype=torch.float64) / (num_probes + 1)


@lru_cache(maxsize=1)
def _bump_quantiles() -> tuple[np.ndarray, np.ndarray]:
    """The bump's distribution function on a grid: (probabilities, abscissae in [−1, 1])."""
    grid = np.linspace(-1.0, 1.0, 20_001)
    inside = np.clip(1.0 - grid**2, 1e-300, None)
    density = np.exp(-1.0 / inside)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return mass / mass[-1], grid


@dataclass(frozen=True, slots=True)
class Mollifier:
    """Relative jitter with the bump density on (−eta_max, eta_max)."""

    eta_max: float

    def __post_init__(self) -> None:
        if not 0 < self.eta_max < 1:
            raise ConfigError(f"Mollifier: eta_max must be in (0, 1), got {self.eta_max}")

    def draw(self, num: int, generator: torch.Generator) -> Tensor:
        """`num` independent draws of η by inverting the distribution function, float64."""
        uniform = torch.rand(num, generator=generator, dtype=torch.float64).numpy()
        probabilities, abscissae = _bump_quantiles()
        return torch.from_numpy(self.eta_max * np.interp(uniform, probabilities, abscissae))


@dataclass(frozen=True, slots=True)
class Jitter:
    """Which radii are jittered: the probe radius (one draw a step) and the step (per particle)."""

    probe: Mollifier | None = None
    step: Mollifier | None = None
