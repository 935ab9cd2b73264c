"""Row-wise subspace: every output unit gets its own orthonormal directions and its bias.

For W (d_out × d_in), row u of W = row u of W₀ + U_u z_u with U_u (d_in × q) orthonormal, and
the unit's bias is one more coordinate. All columns e_u ⊗ U_u,j are orthonormal, so ΠᵀΠ = I;
the bases hold d_in·d_out·q numbers; and a probe changes a single output unit.

The layer's budget is the paper's, n = min((d_out + d_in)·r, d_out·d_in), plus the biases,
in whole particles: ⌈(n + d_out)/d_p⌉ of them, spread over the units as evenly as whole
particles allow, and at least one per unit, since a unit without any would never train.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from hardstep import seeds
from hardstep.subspaces.base import (
    BoundSubspace,
    check_capacity,
    check_rank,
    haar_columns,
    itemsize,
    layer_budget,
)
from hardstep.subspaces.layout import Layout, TensorSpec
from hardstep.subspaces.parts import IdentityPart, Part, PartsSubspace, RowsPart


class RowBasis(Protocol):
    """Directions within the rows of a weight."""

    def memory(self, weight: TensorSpec, slots: int, dtype: torch.dtype) -> int:
        """Bytes of `draw`'s result."""
        ...

    def draw(
        self, weight: TensorSpec, slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """(units, slots, columns), orthonormal in the last two for every unit."""
        ...


@dataclass(frozen=True, slots=True)
class HaarRows:
    """An independent random basis per unit: the strongest, and the default."""

    def memory(self, weight: TensorSpec, slots: int, dtype: torch.dtype) -> int:
        """One basis per unit."""
        return weight.rows * slots * weight.columns * itemsize(dtype)

    def draw(
        self, weight: TensorSpec, slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Q of the thin QR of one Gaussian matrix per unit."""
        shape = (weight.rows, weight.columns, slots)
        gaussian = torch.randn(shape, generator=generator, dtype=dtype)
        return haar_columns(gaussian).transpose(1, 2).contiguous()


@dataclass(frozen=True, slots=True)
class SharedRows:
    """One random basis for all units of a layer: d_out times less memory, trains a bit worse."""

    def memory(self, weight: TensorSpec, slots: int, dtype: torch.dtype) -> int:
        """One basis."""
        return slots * weight.columns * itemsize(dtype)

    def draw(
        self, weight: TensorSpec, slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """The same Q for every unit, stored once."""
        gaussian = torch.randn(weight.columns, slots, generator=generator, dtype=dtype)
        basis = haar_columns(gaussian).T.contiguous()
        return basis.expand(weight.rows, -1, -1)


@dataclass(frozen=True, slots=True)
class RowWise:
    """Local directions per output unit: the default, and what the fast evaluator likes best.

    `rank=None` searches whole rows (the identity basis), grouped by unit.
    """

    rank: int | None = 8
    basis: RowBasis = field(default_factory=HaarRows)
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_rank("RowWise", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw the bases of every weight; vectors that are no unit's bias stay whole."""
        self._check_capacity(layout, particle_dim)
        taken = set(layout.bias_of.values())
        parts = [
            self._part(layout, index, spec, particle_dim, seed)
            for index, spec in enumerate(layout)
            if spec.name not in taken
        ]
        return PartsSubspace(layout, tuple(parts))

    def _part(
        self, layout: Layout, index: int, spec: TensorSpec, particle_dim: int, seed: int
    ) -> Part:
        if not spec.is_matrix:
            return IdentityPart(spec)
        sizes = self._sizes(layout, spec, particle_dim)
        bias = layout.specs[layout.bias_of[spec.name]] if spec.name in layout.bias_of else None
        slots = max(sizes) - (bias is not None)
        if self._whole(layout, spec, sizes):  # no need to turn rows that are searched whole
            basis = torch.eye(slots, dtype=layout.dtype).expand(spec.rows, -1, -1)
        else:
            generator = seeds.generator(seed, "rowwise", index)
            basis = self.basis.draw(spec, slots, generator, layout.dtype)
        return RowsPart(spec, bias, basis.to(spec.device), sizes)

    def _sizes(self, layout: Layout, spec: TensorSpec, particle_dim: int) -> tuple[int, ...]:
        """Coordinates of every unit, bias included."""
        has_bias = spec.name in layout.bias_of
        longest = spec.columns + has_bias
        if self.rank is None:
            return (longest,) * spec.rows
        budget = layer_budget(spec.rows, spec.columns, self.rank) + has_bias * spec.rows
        particles = max(-(-budget // particle_dim), spec.rows)
        each, extra = divmod(particles, spec.rows)
        return tuple(
            min((each + (unit < extra)) * particle_dim, longest) for unit in range(spec.rows)
        )

    @staticmethod
    def _whole(layout: Layout, spec: TensorSpec, sizes: tuple[int, ...]) -> bool:
        """Whether every unit searches its entire row."""
        return min(sizes) == spec.columns + (spec.name in layout.bias_of)

    def _check_capacity(self, layout: Layout, particle_dim: int) -> None:
        needed = 0
        for spec in layout:
            if spec.is_matrix:
                sizes = self._sizes(layout, spec, particle_dim)
                slots = max(sizes) - (spec.name in layout.bias_of)
                if self._whole(layout, spec, sizes):
                    needed += slots * slots * itemsize(layout.dtype)
                else:
                    needed += self.basis.memory(spec, slots, layout.dtype)
        alternative = "a smaller rank, basis=SharedRows(), or Sparse"
        check_capacity(f"RowWise(rank={self.rank})", needed, self.max_bytes, alternative)
