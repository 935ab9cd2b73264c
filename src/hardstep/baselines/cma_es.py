"""CMA-ES through the `cmaes` package; separable (a diagonal covariance) above 1,000 dimensions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardstep._checks import check_count, check_positive
from hardstep.errors import CapacityError, ConfigError
from hardstep.seeds import derive

FULL_DIMENSIONS = 1000  # above, a full covariance and its decompositions take too long
MAX_DIMENSIONS = 1_000_000  # the package keeps several vectors per member in float64

_ARRAYS = ("_mean", "_C", "_p_sigma", "_pc")  # what the package keeps of a run


class CmaEs:
    """One run.

    Args:
        start: (n,) the first mean.
        sigma: The first step size.
        population: Vectors per generation; 4 + 3 ln n by default.
        seed: Fixes every draw.
        separable: A diagonal covariance; by default above 1,000 dimensions.

    Raises:
        CapacityError: More dimensions than a generation can hold.
    """

    def __init__(
        self,
        start: Tensor,
        sigma: float = 0.5,
        population: int | None = None,
        seed: int = 0,
        separable: bool | None = None,
    ) -> None:
        try:
            from cmaes import CMA, SepCMA
        except ImportError as error:
            raise ConfigError(
                "CmaEs needs the package cmaes: pip install 'hardstep[baselines]'"
            ) from error
        check_positive("CmaEs: sigma", sigma)
        if population is not None:
            check_count("CmaEs: population", population, 4)
        if len(start) > MAX_DIMENSIONS:
            raise CapacityError(
                f"CmaEs holds at most {MAX_DIMENSIONS:,} dimensions, got {len(start):,}; use "
                "OpenAiEs"
            )
        self.separable = len(start) > FULL_DIMENSIONS if separable is None else separable
        kind = SepCMA if self.separable else CMA
        self._dtype = start.dtype
        self._method: Any = kind(
            mean=start.detach().double().numpy().copy(),
            sigma=sigma,
            seed=derive(seed, "cma-es") % 2**32,
            population_size=population,
        )
        self._asked: list[np.ndarray] = []

    @property
    def population(self) -> int:
        """Vectors per generation."""
        return int(self._method.population_size)

    @property
    def center(self) -> Tensor:
        """The mean of the distribution."""
        return torch.from_numpy(np.array(self._method.mean)).to(self._dtype)

    def ask(self) -> Tensor:
        """A generation."""
        self._asked = [self._method.ask() for _ in range(self.population)]
        return torch.from_numpy(np.stack(self._asked)).to(self._dtype)

    def tell(self, losses: Tensor) -> None:
        """Update mean, step size and covariance."""
        self._method.tell(list(zip(self._asked, losses.tolist(), strict=True)))

    def state_dict(self) -> dict[str, Any]:
        """Mean, step size, covariance, evolution paths and the generator."""
        method = self._method
        arrays = {name: torch.from_numpy(getattr(method, name).copy()) for name in _ARRAYS}
        _, keys, position, has_gauss, gauss = method._rng.get_state()
        return arrays | {
            "sigma": float(method._sigma),
            "generation": int(method._g),
            "generator": [keys.tolist(), int(position), int(has_gauss), float(gauss)],
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from there."""
        method = self._method
        for name in _ARRAYS:
            setattr(method, name, saved[name].numpy().copy())
        method._sigma, method._g = saved["sigma"], saved["generation"]
        method._D = None  # what the package had derived from another covariance
        keys, *rest = saved["generator"]
        method._rng.set_state(("MT19937", np.array(keys, dtype=np.uint32), *rest))
