"""Sparse Johnson–Lindenstrauss projections, for models whose dense ones do not fit.

Each direction has s = ⌈√N⌉ non-zeros ±1/√s at random places of a tensor of N numbers. The
directions have unit length but overlap, so ΠᵀΠ ≠ I (eigenvalues spread around 1).
"""

import math
from dataclasses import dataclass

import torch

from hardstep import seeds
from hardstep.subspaces.base import BoundSubspace, check_capacity, check_rank
from hardstep.subspaces.layerwise import budget_of
from hardstep.subspaces.layout import Layout, TensorSpec
from hardstep.subspaces.parts import IdentityPart, Part, PartsSubspace, SparsePart


@dataclass(frozen=True, slots=True)
class Sparse:
    """Layer-wise like `LayerWise`, with sparse directions: √N numbers each instead of N."""

    rank: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_rank("Sparse", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw places and signs per weight."""
        del particle_dim
        needed = sum(
            5 * budget_of(spec, self.rank) * math.ceil(math.sqrt(spec.numel))
            for spec in layout
            if budget_of(spec, self.rank) < spec.numel
        )
        check_capacity(f"Sparse(rank={self.rank})", needed, self.max_bytes, "a smaller rank")
        parts = [self._part(i, spec, seed) for i, spec in enumerate(layout)]
        return PartsSubspace(layout, tuple(parts))

    def _part(self, index: int, spec: TensorSpec, seed: int) -> Part:
        budget = budget_of(spec, self.rank)
        if budget == spec.numel:
            return IdentityPart(spec)
        generator = seeds.generator(seed, "sparse", index)
        width = math.ceil(math.sqrt(spec.numel))
        # One place in each of `width` equal strata: distinct by construction, no rejection.
        edges = torch.arange(width + 1, dtype=torch.long) * spec.numel // width
        room = (edges[1:] - edges[:-1]).double()
        uniform = torch.rand(budget, width, generator=generator, dtype=torch.float64)
        places = (edges[:-1] + (uniform * room).long()).to(torch.int32)
        coins = torch.randint(0, 2, (budget, width), generator=generator, dtype=torch.int8)
        return SparsePart(spec, places.to(spec.device), (2 * coins - 1).to(spec.device))
