"""One dense random projection per layer, the paper's HybridSubspace.

Layer l of shape (d_out, d_in) gets n_l = min((d_out + d_in)·r, d_out·d_in) coordinates; the
directions are the Q of a thin QR of a Gaussian matrix, so they are orthonormal and span a
rotation-invariant random subspace. Vectors, and layers whose budget covers them, stay whole.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._linalg import signed_qr
from hardstep.subspaces.base import (
    BoundSubspace,
    check_capacity,
    check_rank,
    itemsize,
    layer_budget,
)
from hardstep.subspaces.layout import Layout, TensorSpec
from hardstep.subspaces.parts import DensePart, IdentityPart, Part, PartsSubspace


def budget_of(spec: TensorSpec, rank: int) -> int:
    """Coordinates a tensor gets: the layer budget for a weight, everything for a vector."""
    return layer_budget(spec.rows, spec.columns, rank) if spec.is_matrix else spec.numel


def orthonormal_rows(num: int, length: int, dtype: torch.dtype, *seed_path: int | str) -> Tensor:
    """`num` orthonormal directions in R^length, Haar, as rows; float32 at least."""
    seed, purpose, *indices = seed_path
    generator = seeds.generator(int(seed), str(purpose), *(int(i) for i in indices))
    gaussian = torch.randn(length, num, generator=generator, dtype=dtype)
    return signed_qr(gaussian).T.contiguous()


@dataclass(frozen=True, slots=True)
class LayerWise:
    """Dense directions per layer: the paper's choice, and the one its figures use.

    Every probe changes a whole layer, and the projection holds d_out·d_in·n_l numbers; prefer
    `RowWise` for speed and memory at the same number of coordinates.
    """

    rank: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_rank("LayerWise", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw one projection per weight."""
        del particle_dim
        check_layer_capacity("LayerWise", self.rank, self.max_bytes, layout)
        parts = [layer_part(layout, i, s, self.rank, seed) for i, s in enumerate(layout)]
        return PartsSubspace(layout, tuple(parts))


def check_layer_capacity(name: str, rank: int, max_bytes: int | None, layout: Layout) -> None:
    """Refuse layer-wise projections that would not fit."""
    needed = sum(
        budget_of(spec, rank) * spec.numel * itemsize(layout.dtype)
        for spec in layout
        if budget_of(spec, rank) < spec.numel
    )
    check_capacity(f"{name}(rank={rank})", needed, max_bytes, f"RowWise(rank={rank})")


def layer_part(layout: Layout, index: int, spec: TensorSpec, rank: int, seed: int) -> Part:
    """The projection of one tensor, or the identity where the budget covers it."""
    budget = budget_of(spec, rank)
    if budget == spec.numel:
        return IdentityPart(spec)
    directions = orthonormal_rows(budget, spec.numel, layout.dtype, seed, "layerwise", index)
    return DensePart((spec,), directions.to(spec.device))
