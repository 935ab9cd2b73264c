"""One dense random projection for all tensors together."""

from dataclasses import dataclass

from hardstep.errors import ConfigError
from hardstep.subspaces.base import BoundSubspace, check_capacity, itemsize
from hardstep.subspaces.layerwise import orthonormal_rows
from hardstep.subspaces.layout import Layout
from hardstep.subspaces.parts import DensePart, PartsSubspace


@dataclass(frozen=True, slots=True)
class Global:
    """`dim` orthonormal directions over the whole model, blind to its layers.

    An ablation: layers of different scale share every direction, and it trains worse than
    per-layer projections of the same dimension.
    """

    dim: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"Global: dim must be at least 1, got {self.dim}")

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw one projection over the concatenated tensors."""
        del particle_dim
        total = layout.num_parameters
        if self.dim > total:
            raise ConfigError(
                f"Global: dim must be at most the {total} parameters, got {self.dim}; use Full()"
            )
        needed = self.dim * total * itemsize(layout.dtype)
        check_capacity(f"Global(dim={self.dim})", needed, self.max_bytes, "RowWise or Sparse")
        directions = orthonormal_rows(self.dim, total, layout.dtype, seed, "global")
        return PartsSubspace(layout, (DensePart(tuple(layout), directions.to(layout.device)),))
