"""Row-wise subspace: every output unit gets its own orthonormal directions and its bias.

For W (d_out × d_in), row u of W = row u of W₀ + U_u z_u with U_u (d_in × q) orthonormal, and
the unit's bias is one more coordinate. All columns e_u ⊗ U_u,j are orthonormal, so ΠᵀΠ = I;
the bases hold d_in·d_out·q numbers; and a probe changes a single output unit.

The layer's budget is the paper's, n = min((d_out + d_in)·r, d_out·d_in), plus the biases,
in whole particles: ⌈(n + d_out)/d_p⌉ of them, spread over the units as evenly as whole
particles allow, and at least one per unit, since a unit without any would never train. Units may
also take turns, a share of them at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._linalg import signed_qr
from hardstep.errors import ConfigError
from hardstep.subspaces.base import (
    BoundSubspace,
    check_capacity,
    check_rank,
    itemsize,
    layer_budget,
)
from hardstep.subspaces.layout import Layout, TensorSpec
from hardstep.subspaces.parts import IdentityPart, Part, PartsSubspace
from hardstep.subspaces.rowspart import RowsPart


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
        return signed_qr(gaussian).transpose(1, 2).contiguous()


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
        basis = signed_qr(gaussian).T.contiguous()
        return basis.expand(weight.rows, -1, -1)


@dataclass(frozen=True, slots=True)
class RowWise:
    """Local directions per output unit: the default, and what the fast evaluator likes best.

    Args:
        rank: Directions per layer as in the paper; `None` searches whole rows (the identity
            basis), grouped by unit.
        basis: How directions are drawn.
        redraw: Draw new directions every so many steps, so that in time the search reaches the
            whole space; coordinates lose their meaning then, and the optimizer forgets what it
            remembers of them. `None` keeps the first ones.
        share: Of the units of every weight that have directions at a time. Units take turns, drawn
            anew with the directions, and the others rest: more and cheaper steps from the same
            number of evaluations, which is what counts where there are few. Vectors that are no
            unit's bias take no turns.
        max_bytes: Refuse bases larger than this.
    """

    rank: int | None = 8
    basis: RowBasis = field(default_factory=HaarRows)
    redraw: int | None = None
    share: float = 1.0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_rank("RowWise", self.rank)
        if self.redraw is not None and self.redraw < 1:
            raise ConfigError(f"RowWise: redraw must be at least 1 or None, got {self.redraw}")
        if not 0 < self.share <= 1:
            raise ConfigError(f"RowWise: share must be in (0, 1], got {self.share}")
        if self.share < 1 and self.redraw is None:
            raise ConfigError(
                f"RowWise: with share={self.share} the other units would never train; give redraw, "
                "after how many steps it is the next ones' turn"
            )

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw the bases of every weight; vectors that are no unit's bias stay whole."""
        self._check_capacity(layout, particle_dim)
        if self.redraw is None:
            return PartsSubspace(layout, self.parts(layout, particle_dim, seed, 0))
        return BoundRedrawn(self, layout, particle_dim, seed)

    def parts(self, layout: Layout, particle_dim: int, seed: int, redraws: int) -> tuple[Part, ...]:
        """The parts after a number of redraws."""
        taken = set(layout.bias_of.values())
        return tuple(
            self._part(layout, index, spec, particle_dim, (seed, redraws))
            for index, spec in enumerate(layout)
            if spec.name not in taken
        )

    def _part(
        self,
        layout: Layout,
        index: int,
        spec: TensorSpec,
        particle_dim: int,
        draw: tuple[int, int],
    ) -> Part:
        if not spec.is_matrix:
            return IdentityPart(spec)
        sizes = self._sizes(layout, spec, particle_dim)
        bias = layout.specs[layout.bias_of[spec.name]] if spec.name in layout.bias_of else None
        slots = max(sizes) - (bias is not None)
        seed, redraws = draw
        if self._whole(layout, spec, sizes):  # no need to turn rows that are searched whole
            basis = torch.eye(slots, dtype=layout.dtype).expand(len(sizes), -1, -1)
        else:
            again = (redraws,) if redraws else ()
            generator = seeds.generator(seed, "rowwise", index, *again)
            basis = self.basis.draw(_first(spec, len(sizes)), slots, generator, layout.dtype)
        units = None
        if len(sizes) < spec.rows:
            units = _turn(spec.rows, len(sizes), (seed, index), redraws).to(spec.device)
        return RowsPart(spec, bias, basis.to(spec.device), sizes, units)

    def _sizes(self, layout: Layout, spec: TensorSpec, particle_dim: int) -> tuple[int, ...]:
        """Coordinates of every unit whose turn it is, bias included."""
        has_bias = spec.name in layout.bias_of
        longest = spec.columns + has_bias
        num = max(1, round(self.share * spec.rows))
        if self.rank is None:
            return (longest,) * num
        budget = layer_budget(spec.rows, spec.columns, self.rank) + has_bias * spec.rows
        particles = max(-(-budget // particle_dim), spec.rows)
        each, extra = divmod(particles, spec.rows)
        return tuple(
            min((each + (unit * spec.rows // num < extra)) * particle_dim, longest)
            for unit in range(num)
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
                    needed += self.basis.memory(_first(spec, len(sizes)), slots, layout.dtype)
        alternative = "a smaller rank, basis=SharedRows(), or Sparse"
        check_capacity(f"RowWise(rank={self.rank})", needed, self.max_bytes, alternative)


def _first(weight: TensorSpec, num: int) -> TensorSpec:
    """A weight of so many of its units."""
    return replace(weight, shape=(num, *weight.shape[1:]))


def _turn(units: int, num: int, key: tuple[int, int], redraws: int) -> Tensor:
    """Whose turn it is, ascending: every unit once before any has its second, or nearly so."""
    turns = -(-units // num)
    cycle, turn = divmod(redraws, turns)
    order = torch.randperm(units, generator=seeds.generator(key[0], "turns", key[1], cycle))
    start = min(turn * num, units - num)  # the last turn is filled up with some of the one before
    return order[start : start + num].sort().values


class BoundRedrawn(PartsSubspace):
    """Row-wise bases derived from (seed, number of redraws)."""

    def __init__(self, setting: RowWise, layout: Layout, particle_dim: int, seed: int) -> None:
        super().__init__(layout, setting.parts(layout, particle_dim, seed, 0))
        self.setting = setting
        self.particle_dim = particle_dim
        self.seed = seed
        self.redraws = 0

    def commit(self, step: int, move: Tensor) -> bool:
        """Redraw when it is time."""
        del move
        assert self.setting.redraw is not None
        if (step + 1) % self.setting.redraw:
            return False
        self._redraw(self.redraws + 1)
        return True

    def _redraw(self, redraws: int) -> None:
        self.redraws = redraws
        self.parts = self.setting.parts(self.layout, self.particle_dim, self.seed, redraws)

    def state_dict(self) -> dict[str, Tensor]:
        """How often the bases were redrawn."""
        return {"redraws": torch.tensor(self.redraws)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Rebuild the bases the state was saved with."""
        if int(state["redraws"]) != self.redraws:
            self._redraw(int(state["redraws"]))
