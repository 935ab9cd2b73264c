"""Factored low-rank subspace: W = W₀ + A Bᵀ − A₀ B₀ᵀ with the factors as coordinates.

The map is bilinear, so its directions turn as the factors move: a probe of A moves W by
dA·Bᵀ. At the start A₀ and B₀ have orthonormal columns; the two families of directions overlap
all the same, so ΠᵀΠ ≠ I. It needs (d_out + d_in)·r numbers of memory and no projection.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.subspaces.base import BlockMap, BoundSubspace, IdentityMap
from hardstep.subspaces.layerwise import draw_directions
from hardstep.subspaces.layout import Layout, TensorSpec


@dataclass(frozen=True, slots=True)
class LowRank:
    """Factor pairs per layer: the least memory, and the subspace EGGROLL perturbs."""

    rank: int

    def __post_init__(self) -> None:
        check_count("LowRank: rank", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw the starting factors; small layers and vectors stay whole."""
        del particle_dim
        maps: list[BlockMap] = []
        for index, spec in enumerate(layout):
            if spec.budget(self.rank) == spec.numel:
                maps.append(IdentityMap(spec))
                continue
            rank = min(self.rank, spec.rows, spec.columns)
            left, right = (
                draw_directions(rank, length, layout.dtype, seed, "lowrank", index, side).T
                for side, length in enumerate((spec.rows, spec.columns))
            )
            maps.append(FactorMap(spec, left.to(spec.device), right.to(spec.device)))
        return BoundLowRank(layout, tuple(maps))


class FactorMap(BlockMap):
    """The factors (d_out, r) and (d_in, r) of one weight, one group each."""

    orthonormal = False

    def __init__(self, spec: TensorSpec, left: Tensor, right: Tensor) -> None:
        super().__init__((spec,), (left.numel(), right.numel()))
        self.left, self.right = left, right
        self.memory = (left.numel() + right.numel()) * left.element_size()

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies plus dA·Bᵀ or A·dBᵀ; a particle lies in one factor."""
        (spec,) = self.specs
        coordinates = offsets.new_zeros(len(index), self.left.numel() + self.right.numel())
        live = torch.where(index >= 0, offsets, 0)
        coordinates.scatter_add_(1, index.clamp_min(0), live)
        left, right = self._factors(coordinates)
        change = left @ self.right.T + self.left @ right.transpose(1, 2)
        shaped = change.reshape(len(index), *spec.shape)
        return {spec.name: base[spec.name].detach() + shaped.to(spec.dtype)}

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """(A + a)(B + b)ᵀ − A Bᵀ, by its three terms so that nothing large cancels."""
        (spec,) = self.specs
        left, right = (factor[0] for factor in self._factors(coordinates[None]))
        change = left @ (self.right + right).T + self.left @ right.T
        return {spec.name: change.reshape(spec.shape).to(spec.dtype)}

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The factors themselves: what weight decay shrinks here."""
        del tensors
        return torch.cat([self.left.reshape(-1), self.right.reshape(-1)])

    def move(self, coordinates: Tensor) -> None:
        """Add to the factors."""
        left, right = (factor[0] for factor in self._factors(coordinates[None]))
        self.left, self.right = self.left + left, self.right + right

    def _factors(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, size) as stacked factors."""
        left, right = torch.split(coordinates, [self.left.numel(), self.right.numel()], dim=1)
        return left.reshape(-1, *self.left.shape), right.reshape(-1, *self.right.shape)


class BoundLowRank(BoundSubspace):
    """Keeps the factors in step with the tensors."""

    def _factor_maps(self) -> dict[str, FactorMap]:
        return {m.specs[0].name: m for m in self.maps if isinstance(m, FactorMap)}

    def commit(self, step: int, move: Tensor) -> bool:
        """Move the factors; coordinates keep their meaning."""
        del step
        for block_map, piece in zip(self.maps, self.split(move), strict=True):
            if isinstance(block_map, FactorMap):
                block_map.move(piece)
        return False

    def state_dict(self) -> dict[str, Tensor]:
        """All factors."""
        state = {}
        for name, factors in self._factor_maps().items():
            state[f"left.{name}"], state[f"right.{name}"] = factors.left, factors.right
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the factors."""
        for name, factors in self._factor_maps().items():
            factors.left = state[f"left.{name}"].to(factors.left)
            factors.right = state[f"right.{name}"].to(factors.right)
