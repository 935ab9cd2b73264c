"""Random projections blind to units: one dense per layer, one dense for all, one sparse per layer.

`LayerWise` is the paper's HybridSubspace. Layer l of shape (d_out, d_in) gets
n_l = min((d_out + d_in)·r, d_out·d_in) coordinates; the directions are the Q of a thin QR of a
Gaussian matrix, so they are orthonormal and span a rotation-invariant random subspace. Vectors,
and layers whose budget covers them, stay whole.

`Sparse` has Johnson–Lindenstrauss directions, for models whose dense ones do not fit: s = ⌈√N⌉
non-zeros ±1/√s at random places of a tensor of N numbers. The directions have unit length but
overlap, so ΠᵀΠ ≠ I (eigenvalues spread around 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._checks import check_count
from hardstep._linalg import signed_qr
from hardstep.errors import ConfigError
from hardstep.subspaces.base import (
    BlockMap,
    BoundSubspace,
    IdentityMap,
    check_capacity,
    stack_copies,
)
from hardstep.subspaces.layout import Layout, TensorSpec


@dataclass(frozen=True, slots=True)
class LayerWise:
    """Dense directions per layer: the paper's choice, and the one its figures use.

    Every probe changes a whole layer, and the projection holds d_out·d_in·n_l numbers; prefer
    `RowWise` for speed and memory at the same number of coordinates.
    """

    rank: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_count("LayerWise: rank", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw one projection per weight."""
        del particle_dim
        return BoundSubspace(
            layout, draw_layers("LayerWise", layout, self.rank, self.max_bytes, seed)
        )


@dataclass(frozen=True, slots=True)
class Global:
    """`dim` orthonormal directions over the whole model, blind to its layers.

    An ablation: layers of different scale share every direction, and it trains worse than
    per-layer projections of the same dimension.
    """

    dim: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_count("Global: dim", self.dim)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw one projection over the concatenated tensors."""
        del particle_dim
        total = layout.num_parameters
        if self.dim > total:
            raise ConfigError(
                f"Global: dim must be at most the {total} parameters, got {self.dim}; use Full()"
            )
        needed = self.dim * total * layout.dtype.itemsize
        check_capacity(f"Global(dim={self.dim})", needed, self.max_bytes, "RowWise or Sparse")
        basis = draw_directions(self.dim, total, layout.dtype, seed, "global")
        return BoundSubspace(layout, (DenseMap(tuple(layout), basis.to(layout.device)),))


@dataclass(frozen=True, slots=True)
class Sparse:
    """Layer-wise like `LayerWise`, with sparse directions: √N numbers each instead of N."""

    rank: int
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_count("Sparse: rank", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw places and signs per weight."""
        del particle_dim
        needed = sum(
            5 * spec.budget(self.rank) * math.ceil(math.sqrt(spec.numel))
            for spec in layout
            if spec.budget(self.rank) < spec.numel
        )
        check_capacity(f"Sparse(rank={self.rank})", needed, self.max_bytes, "a smaller rank")
        maps = tuple(self._draw(index, spec, seed) for index, spec in enumerate(layout))
        return BoundSubspace(layout, maps)

    def _draw(self, index: int, spec: TensorSpec, seed: int) -> BlockMap:
        budget = spec.budget(self.rank)
        if budget == spec.numel:
            return IdentityMap(spec)
        generator = seeds.generator(seed, "sparse", index)
        width = math.ceil(math.sqrt(spec.numel))
        # One place in each of `width` equal strata: distinct by construction, no rejection.
        edges = torch.arange(width + 1, dtype=torch.long) * spec.numel // width
        room = (edges[1:] - edges[:-1]).double()
        uniform = torch.rand(budget, width, generator=generator, dtype=torch.float64)
        places = (edges[:-1] + (uniform * room).long()).to(torch.int32)
        coins = torch.randint(0, 2, (budget, width), generator=generator, dtype=torch.int8)
        return SparseMap(spec, places.to(spec.device), (2 * coins - 1).to(spec.device))


def draw_layers(
    owner: str, layout: Layout, rank: int, max_bytes: int | None, seed: int
) -> tuple[BlockMap, ...]:
    """A dense projection per tensor, or the identity where the budget covers it.

    Raises:
        CapacityError: They would not fit.
    """
    needed = sum(
        spec.budget(rank) * spec.numel * layout.dtype.itemsize
        for spec in layout
        if spec.budget(rank) < spec.numel
    )
    check_capacity(f"{owner}(rank={rank})", needed, max_bytes, f"RowWise(rank={rank})")
    maps: list[BlockMap] = []
    for index, spec in enumerate(layout):
        budget = spec.budget(rank)
        if budget == spec.numel:
            maps.append(IdentityMap(spec))
        else:
            path = (seed, "layerwise", index)
            basis = draw_directions(budget, spec.numel, layout.dtype, *path)
            maps.append(DenseMap((spec,), basis.to(spec.device)))
    return tuple(maps)


def draw_directions(
    num: int, length: int, dtype: torch.dtype, seed: int, purpose: str, *indices: int
) -> Tensor:
    """`num` orthonormal directions in R^length, Haar, (num, length)."""
    generator = seeds.generator(seed, purpose, *indices)
    gaussian = torch.randn(length, num, generator=generator, dtype=dtype)
    return signed_qr(gaussian).T.contiguous()


class DenseMap(BlockMap):
    """Directions (n, N) over the concatenated tensors."""

    def __init__(self, specs: tuple[TensorSpec, ...], basis: Tensor) -> None:
        super().__init__(specs, (len(basis),))
        self.basis = basis
        self.memory = basis.numel() * basis.element_size()

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies plus offsets · directions, one matrix product per particle."""
        flat = offsets.new_empty(len(index), self.basis.shape[1])
        _, counts = torch.unique_consecutive(index[:, 0], return_counts=True)
        end = 0
        for count in counts.tolist():  # probes of one particle follow each other
            start, end = end, end + count
            live = index[start] >= 0
            directions = self.basis[index[start][live]]
            torch.matmul(offsets[start:end, live], directions, out=flat[start:end])
        changes = self._cut(flat)
        return {name: base[name].detach() + change for name, change in changes.items()}

    def directions(self, index: Tensor) -> Tensor | None:
        """Those of the basis, if they lie in one tensor."""
        if len(self.specs) != 1:
            return None
        first = int(index[0])
        # Consecutive particles need no copy of directions that may take gigabytes.
        if bool((index == torch.arange(first, first + len(index), device=index.device)).all()):
            directions = self.basis[first : first + len(index)]
        else:
            directions = self.basis[index.clamp_min(0)]
        return directions.reshape(len(index), *self.specs[0].shape)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The product z · directions, for z (…, n)."""
        return self._cut(coordinates @ self.basis)

    expand_many = expand

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The product directions · θ."""
        flat = torch.cat([tensors[spec.name].detach().reshape(-1) for spec in self.specs])
        return self.basis @ flat.to(self.basis.dtype)

    def _cut(self, flat: Tensor) -> dict[str, Tensor]:
        """Changes (…, N) of all numbers as those of the tensors."""
        pieces = torch.split(flat, [spec.numel for spec in self.specs], dim=-1)
        return {
            spec.name: piece.reshape(flat.shape[:-1] + spec.shape).to(spec.dtype)
            for spec, piece in zip(self.specs, pieces, strict=True)
        }


class SparseMap(BlockMap):
    """±1/√s at s places per direction: cheap, unit length, but not orthogonal."""

    orthonormal = False

    def __init__(self, spec: TensorSpec, places: Tensor, signs: Tensor) -> None:
        super().__init__((spec,), (len(places),))
        self.spec = spec
        self.places = places  # (n, s) positions in the flat tensor
        self.signs = signs  # (n, s) ±1, int8
        self.scale = 1 / math.sqrt(places.shape[1])
        self.memory = places.numel() * places.element_size() + signs.numel()

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with d_p·s numbers changed each."""
        stack = stack_copies(base[self.spec.name], len(index))
        safe = index.clamp_min(0)
        change = torch.where(index >= 0, offsets, 0)[:, :, None] * self.signs[safe] * self.scale
        places = self.places[safe].reshape(len(index), -1).long()
        stack.view(len(index), -1).scatter_add_(1, places, change.flatten(1).to(stack.dtype))
        return {self.spec.name: stack}

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Sum of scaled directions."""
        flat = coordinates.new_zeros(self.spec.numel)
        change = coordinates[:, None] * self.signs * self.scale
        flat.index_add_(0, self.places.reshape(-1).long(), change.reshape(-1))
        return {self.spec.name: flat.reshape(self.spec.shape).to(self.spec.dtype)}

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Signed sums over each direction's places."""
        flat = tensors[self.spec.name].detach().reshape(-1)
        return (flat[self.places.long()] * self.signs).sum(dim=1) * self.scale
