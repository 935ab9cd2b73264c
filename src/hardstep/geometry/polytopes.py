"""Polytopes: centered sets of unit directions that every particle rotates and looks along.

Orthoplex and simplex are tight frames, Σ v = 0 and Σ v vᵀ = (V/d) I, and so is the cube, so
all three have the same mean step at equal radii. They differ in price: d + 1, 2d and 2^d
evaluations per particle.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.errors import ConfigError

MAX_CUBE_DIM = 12  # 4,096 vertices; beyond that a cube is a mistake, not a choice


class Polytope(Protocol):
    """Unit vertices in `dim` dimensions whose sum is zero."""

    @property
    def dim(self) -> int:
        """The particle dimension d_p."""
        ...

    @property
    def num_vertices(self) -> int:
        """V, the number of directions."""
        ...

    def vertices(self) -> Tensor:
        """The directions, (V, d_p), float64."""
        ...


@dataclass(frozen=True, slots=True)
class Simplex:
    """d + 1 directions: the cheapest frame, and the default."""

    dim: int

    def __post_init__(self) -> None:
        check_count("Simplex: dim", self.dim)

    @property
    def num_vertices(self) -> int:
        """d_p + 1."""
        return self.dim + 1

    def vertices(self) -> Tensor:
        """Unit vectors with pairwise inner product −1/d.

        Row j of the Helmert matrix spans the direction "first j points against point j + 1",
        an orthonormal basis of the centered space that needs no eigenvectors, so the vertices
        are the same numbers on every machine.
        """
        d = self.dim
        helmert = torch.zeros(d, d + 1, dtype=torch.float64)
        for j in range(1, d + 1):
            helmert[j - 1, :j] = 1.0
            helmert[j - 1, j] = -float(j)
            helmert[j - 1] /= math.sqrt(j * (j + 1))
        return torch.nn.functional.normalize(helmert.T, dim=1)


@dataclass(frozen=True, slots=True)
class Orthoplex:
    """2d directions ±e_j: antithetic pairs cancel even orders, at nearly twice the price."""

    dim: int

    def __post_init__(self) -> None:
        check_count("Orthoplex: dim", self.dim)

    @property
    def num_vertices(self) -> int:
        """2 d_p."""
        return 2 * self.dim

    def vertices(self) -> Tensor:
        """In the order +e_1, −e_1, +e_2, −e_2 and so on."""
        eye = torch.eye(self.dim, dtype=torch.float64)
        return torch.stack([eye, -eye], dim=1).reshape(2 * self.dim, self.dim)


@dataclass(frozen=True, slots=True)
class Cube:
    """2^d corners: the densest look around, affordable for d up to about 4."""

    dim: int

    def __post_init__(self) -> None:
        check_count("Cube: dim", self.dim)
        if self.dim > MAX_CUBE_DIM:
            raise ConfigError(f"Cube: dim must be at most {MAX_CUBE_DIM}, got {self.dim}")

    @property
    def num_vertices(self) -> int:
        """2 ** d_p."""
        return int(2**self.dim)

    def vertices(self) -> Tensor:
        """All sign patterns, scaled to unit length."""
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * self.dim)
        return signs.reshape(self.num_vertices, self.dim) / math.sqrt(self.dim)
