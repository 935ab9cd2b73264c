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
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from hardstep import seeds
from hardstep._checks import check_count, check_share
from hardstep.errors import ConfigError
from hardstep.subspaces.base import (
    BlockMap,
    BoundSubspace,
    IdentityMap,
    LinearMove,
    LocalChange,
    check_capacity,
    stack_copies,
)
from hardstep.subspaces.bases import HaarRows, RowBasis
from hardstep.subspaces.layout import Layout, TensorSpec, layer_budget


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
            with every new set of directions, and the others rest: more and cheaper steps from the
            same number of evaluations, which is what counts where there are few. Vectors that are
            no unit's bias take no turns.
        max_bytes: Refuse bases larger than this.
    """

    rank: int | None = 8
    basis: RowBasis = field(default_factory=HaarRows)
    redraw: int | None = None
    share: float = 1.0
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rank is not None:
            check_count("RowWise: rank", self.rank)
        if self.redraw is not None:
            check_count("RowWise: redraw, unless None,", self.redraw)
        check_share("RowWise: share", self.share)
        if self.share < 1 and self.redraw is None:
            raise ConfigError(
                f"RowWise: with share={self.share} the other units would never train; give redraw, "
                "after how many steps it is the next ones' turn"
            )

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Draw the bases of every weight; vectors that are no unit's bias stay whole."""
        self._check_capacity(layout, particle_dim)
        if self.redraw is None:
            return BoundSubspace(layout, self.draw(layout, particle_dim, seed))
        return BoundRedrawn(self, layout, particle_dim, seed)

    def draw(
        self, layout: Layout, particle_dim: int, seed: int, redraws: int = 0
    ) -> tuple[BlockMap, ...]:
        """The maps of all blocks after a number of redraws."""
        taken = set(layout.bias_of.values())
        maps: list[BlockMap] = []
        for index, spec in enumerate(layout):
            if spec.is_matrix:
                bias = layout.find_bias(spec)
                sizes = self._sizes(spec, bias, particle_dim)
                maps.append(self._draw(spec, bias, sizes, layout.dtype, (seed, index, redraws)))
            elif spec.name not in taken:
                maps.append(IdentityMap(spec))
        return tuple(maps)

    def _draw(
        self,
        spec: TensorSpec,
        bias: TensorSpec | None,
        sizes: tuple[int, ...],
        dtype: torch.dtype,
        path: tuple[int, int, int],
    ) -> "UnitMap":
        seed, index, redraws = path
        slots, num = max(sizes) - (bias is not None), len(sizes)
        if _covers(spec, bias, sizes):  # no need to turn rows that are searched whole
            basis = torch.eye(slots, dtype=dtype).expand(num, -1, -1)
        else:
            again = (redraws,) if redraws else ()
            generator = seeds.generator(seed, "rowwise", index, *again)
            basis = self.basis.draw((num, spec.columns), slots, generator, dtype)
        units = None
        if num < spec.rows:
            units = _take_turn(spec.rows, num, seed, index, redraws).to(spec.device)
        return UnitMap(spec, bias, basis.to(spec.device), sizes, units)

    def _sizes(
        self, spec: TensorSpec, bias: TensorSpec | None, particle_dim: int
    ) -> tuple[int, ...]:
        """Coordinates of every unit whose turn it is, bias included."""
        longest = spec.columns + (bias is not None)
        num = max(1, round(self.share * spec.rows))
        if self.rank is None:
            return (longest,) * num
        budget = layer_budget(spec.rows, spec.columns, self.rank) + (bias is not None) * spec.rows
        particles = max(-(-budget // particle_dim), spec.rows)
        each, extra = divmod(particles, spec.rows)
        return tuple(
            min((each + (unit * spec.rows // num < extra)) * particle_dim, longest)
            for unit in range(num)
        )

    def _check_capacity(self, layout: Layout, particle_dim: int) -> None:
        needed = 0
        for spec in layout:
            if spec.is_matrix:
                bias = layout.find_bias(spec)
                sizes = self._sizes(spec, bias, particle_dim)
                slots = max(sizes) - (bias is not None)
                if _covers(spec, bias, sizes):
                    needed += slots * slots * layout.dtype.itemsize
                else:
                    shape = (len(sizes), spec.columns)
                    needed += self.basis.memory(shape, slots, layout.dtype)
        alternative = "a smaller rank, basis=SharedRows(), or Sparse"
        check_capacity(f"RowWise(rank={self.rank})", needed, self.max_bytes, alternative)


def _covers(spec: TensorSpec, bias: TensorSpec | None, sizes: tuple[int, ...]) -> bool:
    """Whether every unit searches its entire row."""
    return min(sizes) == spec.columns + (bias is not None)


def _take_turn(units: int, num: int, seed: int, index: int, redraws: int) -> Tensor:
    """Whose turn it is, ascending: every unit once before any has its second, or nearly so."""
    turns = -(-units // num)
    cycle, turn = divmod(redraws, turns)
    order = torch.randperm(units, generator=seeds.generator(seed, "turns", index, cycle))
    start = min(turn * num, units - num)  # the last turn is filled up with some of the one before
    return order[start : start + num].sort().values


class BoundRedrawn(BoundSubspace):
    """Row-wise bases derived from (seed, number of redraws)."""

    def __init__(self, setting: RowWise, layout: Layout, particle_dim: int, seed: int) -> None:
        super().__init__(layout, setting.draw(layout, particle_dim, seed))
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
        self.maps = self.setting.draw(self.layout, self.particle_dim, self.seed, redraws)
        self.redraws = redraws  # last: should drawing fail, the bases are those of before

    def state_dict(self) -> dict[str, Tensor]:
        """How often the bases were redrawn."""
        return {"redraws": torch.tensor(self.redraws)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Rebuild the bases the state was saved with."""
        if int(state["redraws"]) != self.redraws:
            self._redraw(int(state["redraws"]))


class UnitMap(BlockMap):
    """Output units have their own directions within their weight rows, and their biases.

    The i-th of the units has `sizes[i]` coordinates: directions over its row first, the bias last.

    Args:
        weight: The weight, one row per output unit.
        bias: The units' biases.
        basis: Directions, (units, slots, columns); a unit uses its first few slots.
        sizes: Coordinates of every unit.
        units: Which units have directions, ascending; left out, all of them.
    """

    def __init__(
        self,
        weight: TensorSpec,
        bias: TensorSpec | None,
        basis: Tensor,
        sizes: tuple[int, ...],
        units: Tensor | None = None,
    ) -> None:
        super().__init__((weight, bias) if bias else (weight,), sizes)
        self.weight, self.bias = weight, bias
        self.basis, self.units = basis, units
        self.num_units = weight.rows
        self.memory = basis.untyped_storage().nbytes()
        lengths = torch.tensor(sizes, device=basis.device)
        self.place = torch.repeat_interleave(lengths)  # (n,) of a coordinate's unit in the basis
        self.unit = self.place if units is None else units[self.place]
        self.slot = torch.arange(len(self.place), device=basis.device)
        self.slot = self.slot - (torch.cumsum(lengths, 0) - lengths)[self.place]
        # The bias coordinate of a unit is its last one; it has no direction in the basis.
        self.is_bias = (self.slot == lengths[self.place] - 1) & (bias is not None)
        self._from = self._sources()

    def _sources(self) -> tuple[Tensor, Tensor]:
        """The coordinate of every direction (units · slots,), n where there is none; of biases."""
        units, slots, _ = self.basis.shape
        along = (~self.is_bias).nonzero()[:, 0]
        directions = torch.full((units * slots,), len(self.unit), device=along.device)
        directions[self.place[along] * slots + self.slot[along]] = along
        return directions, self.is_bias.nonzero()[:, 0]

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with one row (and one bias) changed each."""
        result = {}
        for name, (unit, rows) in self.local(base, index, offsets).items():
            stack = stack_copies(base[name], len(index))
            stack[torch.arange(len(index), device=stack.device), unit] = rows
            result[name] = stack
        return result

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange]:
        """The changed rows and biases alone; a particle never straddles two units."""
        safe = index.clamp_min(0)
        live, is_bias = torch.where(index >= 0, offsets, 0), self.is_bias[safe]
        unit, place = self.unit[safe[:, 0]], self.place[safe[:, 0]]
        along_row = torch.where(is_bias, 0, live)
        slot = torch.where(is_bias, 0, self.slot[safe])
        table, first = self._rows(place[:, None])
        directions = table.index_select(0, (first + slot).flatten()).reshape(*slot.shape, -1)
        change = torch.einsum("nd,ndc->nc", along_row, directions)
        rows = base[self.weight.name].detach()[unit]
        rows = rows + change.reshape(rows.shape).to(rows.dtype)
        result = {self.weight.name: LocalChange(unit, rows)}
        if self.bias:
            biases = base[self.bias.name].detach()[unit]
            shift = torch.where(is_bias, live, 0).sum(dim=1)
            result[self.bias.name] = LocalChange(unit, biases + shift.to(biases.dtype))
        return result

    def changed_rows(self, index: Tensor) -> Tensor:
        """The unit of the first coordinate: a particle never straddles two."""
        return self.unit[index.clamp_min(0)[:, 0]]

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove:
        """Directions of the coordinates from the first to the last one asked for."""
        first = int(torch.where(index >= 0, index, index.max()).min())
        last = int(index.max()) + 1
        safe = index.clamp_min(0)
        live, is_bias = torch.where(index >= 0, offsets, 0), self.is_bias[safe]
        directions, of = self._directions(first, last)
        return LinearMove(
            unit=self.unit[safe[:, 0]],
            directions=directions,
            places=of[(index - first).clamp_min(0)],
            lengths=torch.where(is_bias, 0, live),
            shift=torch.where(is_bias, live, 0).sum(dim=1),
        )

    def _rows(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """All directions as rows of a table, and the first row of the units at some places."""
        if self.basis.stride(0):  # units have directions of their own
            return self.basis.flatten(0, 1), place * self.basis.shape[1]
        return self.basis[0], torch.zeros_like(place)

    def _directions(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Those of a range of coordinates, and which is whose; a bias has none: its is any.

        They lie next to each other in the basis, and are not copied unless others lie between
        them (units may have different numbers of coordinates).
        """
        along = ~self.is_bias[first:last]
        table, rows = self._rows(self.place[first:last])
        rows = rows + torch.where(along, self.slot[first:last], 0)
        start, end = int(rows.min()), int(rows.max()) + 1
        if end - start <= last - first:
            return table[start:end], rows - start
        chosen = rows[along]
        if not len(chosen):  # biases alone
            chosen = rows[:1]
        return table.index_select(0, chosen), (torch.cumsum(along, 0) - 1).clamp_min(0)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Row changes of coordinates (…, n) by one batched product; biases are read off."""
        directions, biases = self._from
        table = pad(coordinates, (0, 1)).index_select(-1, directions)
        by_unit = table.reshape(-1, *self.basis.shape[:2]).transpose(0, 1)
        change = self._fill_in(torch.bmm(by_unit, self.basis).transpose(0, 1), 1)
        shape = coordinates.shape[:-1] + self.weight.shape
        result = {self.weight.name: change.reshape(shape).to(self.weight.dtype)}
        if self.bias:
            shifts = self._fill_in(coordinates.index_select(-1, biases), -1)
            result[self.bias.name] = shifts.to(self.bias.dtype)
        return result

    expand_many = expand

    def _fill_in(self, changes: Tensor, axis: int) -> Tensor:
        """Changes of the units that have directions, with zeros for the others between them."""
        if self.units is None:
            return changes
        shape = list(changes.shape)
        shape[axis] = self.num_units
        return changes.new_zeros(shape).index_copy_(axis, self.units, changes)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Components of each row along its directions, and the biases."""
        rows = tensors[self.weight.name].detach().reshape(self.num_units, -1, 1)
        if self.units is not None:
            rows = rows[self.units]
        along = torch.bmm(self.basis, rows.to(self.basis.dtype)).squeeze(2)
        coordinates = along[self.place, self.slot.clamp_max(self.basis.shape[1] - 1)]
        if self.bias:
            biases = tensors[self.bias.name].detach()
            coordinates = torch.where(self.is_bias, biases[self.unit], coordinates)
        return coordinates
