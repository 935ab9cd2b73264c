"""EGGROLL's subspace: the entries of A and B of a low-rank change A Bᵀ, per matrix.

The factors are 0 at the current weights, wherever those are, so nothing moves along with them
and there is no base to choose. `LowRank` differs: its factors are weights that are searched.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.subspaces import BlockMap, BoundSubspace, Factors, IdentityMap, Layout, TensorSpec
from hardstep.subspaces.lowrank import FactorMap

PRECISE = (torch.float32, torch.float64)
LARGE = 1 << 14  # numbers of a weight; with fewer, it takes less time to compute than to avoid


@dataclass(frozen=True, slots=True)
class Factored:
    """Factor pairs for what has two dimensions or more, the rest whole."""

    rank: int

    def __post_init__(self) -> None:
        check_count("Factored: rank", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> "BoundFactored":
        """Nothing to draw."""
        del particle_dim, seed
        return BoundFactored(layout, tuple(self._part(layout, spec) for spec in layout))

    def _part(self, layout: Layout, spec: TensorSpec) -> BlockMap:
        if not spec.is_matrix:
            return IdentityMap(spec)
        rank = min(self.rank, spec.rows, spec.columns)
        zeros = torch.zeros(spec.rows + spec.columns, rank, dtype=layout.dtype, device=spec.device)
        return ProductPart(spec, zeros[: spec.rows], zeros[spec.rows :])


class ProductPart(FactorMap):
    """Factors that stay at 0, so that a change is the product of the coordinates alone."""

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """A Bᵀ of every vector (N, n)."""
        (spec,) = self.specs
        left, right = self._factors(coordinates)
        change = left @ right.transpose(1, 2)
        return {spec.name: change.reshape(-1, *spec.shape).to(spec.dtype)}

    @property
    def pays(self) -> bool:
        """Whether to keep the factors apart, and a linear layer may do so."""
        (spec,) = self.specs
        return len(spec.shape) == 2 and spec.numel >= LARGE and spec.dtype in PRECISE

    def factors(self, coordinates: Tensor) -> Factors:
        """A and B of every vector (N, n)."""
        return Factors(*self._factors(coordinates))


class BoundFactored(BoundSubspace):
    """Changes A Bᵀ, and what a population of them adds up to."""

    def expand_thin(self, coordinates: Tensor) -> tuple[dict[str, Tensor], dict[str, Factors]]:
        """Large matrices as their factors, the rest whole.

        In half precision a weight is rounded after it has been changed, so there it has to be.
        """
        whole: dict[str, Tensor] = {}
        thin: dict[str, Factors] = {}
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            (spec,) = part.specs
            if isinstance(part, ProductPart) and part.pays:
                thin[spec.name] = part.factors(piece)
            else:
                whole |= part.expand_many(piece)
        return whole, thin

    def scales(self, deviation: float) -> Tensor:
        """(dim,) factors that make standard normal coordinates changes of this deviation.

        A change is then `deviation` · A Bᵀ / √r, or `deviation` times a normal vector.
        """
        pieces = []
        for part in self.maps:
            if isinstance(part, FactorMap):
                rank = part.left.shape[1]
                pieces.append(torch.full((part.left.numel(),), deviation / math.sqrt(rank)))
                pieces.append(torch.ones(part.right.numel()))
            else:
                pieces.append(torch.full((part.block.size,), deviation))
        return torch.cat(pieces)

    def mirrored(self, coordinates: Tensor) -> Tensor:
        """Coordinates (N, dim) of the opposite changes: −A and B, −vectors."""
        pieces = []
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            kept = part.right.numel() if isinstance(part, FactorMap) else 0
            turned, same = torch.split(piece, [piece.shape[1] - kept, kept], dim=1)
            pieces += [-turned, same]
        return torch.cat(pieces, dim=1)

    def combined(self, weights: Tensor, coordinates: Tensor) -> dict[str, Tensor]:
        """Σ w_i · change_i for weights (N,) and coordinates (N, dim), without any change_i."""
        result = {}
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            (spec,) = part.specs
            if isinstance(part, ProductPart):
                left, right = part.factors(piece)
                # Member and rank together are the axis that the product sums over.
                change = torch.tensordot(
                    weights[:, None, None] * left, right, dims=([0, 2], [0, 2])
                )
            else:
                change = weights @ piece
            result[spec.name] = change.reshape(spec.shape).to(spec.dtype)
        return result
