"""CMA-ES through the `cmaes` package; separable (a diagonal covariance) above 1,000 dimensions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardstep.errors import CapacityError, ConfigError
from hardstep.seeds import derive

FULL_DIMENSIONS = 1000  # above, a full covariance and its decompositions take too long
MAX_DIMENSIONS = 1_000_000  # the package keeps several vectors per member in float64


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
                "CmaEs needs the package cmaes: pip install 'hardstep[rivals]'"
            ) from error
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
    def centre(self) -> Tensor:
        """The mean of the distribution."""
        return torch.from_numpy(np.array(self._method.mean)).to(self._dtype)

    def ask(self) -> Tensor:
        """A generation."""
        self._asked = [self._method.ask() for _ in range(self._method.population_size)]
        return torch.from_numpy(np.stack(self._asked)).to(self._dtype)

    def tell(self, losses: Tensor) -> None:
        """Update mean, step size and covariance."""
        self._method.tell(list(zip(self._asked, losses.tolist(), strict=True)))
