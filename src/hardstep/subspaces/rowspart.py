"""Directions within the rows of a weight: the part that row-wise subspaces are made of."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from hardstep.subspaces.base import LinearMove, LocalChange
from hardstep.subspaces.layout import TensorSpec
from hardstep.subspaces.parts import Part, repeated


class Sources(NamedTuple):
    """Which coordinate it is that moves something."""

    directions: Tensor  # (units · slots,) along a direction; n where a unit has no such slot
    biases: Tensor  # (units,) a bias; nothing without


class RowsPart(Part):
    """Output units have their own directions within their rows, and their biases.

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
        self.memory = basis.untyped_storage().nbytes()
        lengths = torch.tensor(sizes, device=basis.device)
        self.place = torch.repeat_interleave(lengths)  # (n,) of a coordinate's unit in the basis
        self.unit = self.place if units is None else units[self.place]
        self.slot = torch.arange(len(self.place), device=basis.device)
        self.slot = self.slot - (torch.cumsum(lengths, 0) - lengths)[self.place]
        # The bias coordinate of a unit is its last one; it has no direction in the basis.
        self.is_bias = (self.slot == lengths[self.place] - 1) & (bias is not None)
        self.sources = self._sources()

    def _sources(self) -> Sources:
        units, slots, _ = self.basis.shape
        row, biases = (~self.is_bias).nonzero()[:, 0], self.is_bias.nonzero()[:, 0]
        directions = torch.full((units * slots,), len(self.unit), device=row.device)
        directions[self.place[row] * slots + self.slot[row]] = row
        return Sources(directions, biases)

    def displaced(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with one row (and one bias) changed each."""
        result = {}
        for name, (unit, rows) in self.local(base, index, offsets).items():
            stack = repeated(base[name], len(index))
            stack[torch.arange(len(index), device=stack.device), unit] = rows
            result[name] = stack
        return result

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange]:
        """The changed rows and biases alone; a particle never straddles two units."""
        safe = index.clamp_min(0)
        live = torch.where(index >= 0, offsets, 0)
        unit, place = self.unit[safe[:, 0]], self.place[safe[:, 0]]
        along_row = torch.where(self.is_bias[safe], 0, live)
        slot = torch.where(self.is_bias[safe], 0, self.slot[safe])
        change = torch.einsum("nd,ndc->nc", along_row, self.basis[place[:, None], slot])
        rows = base[self.weight.name].detach()[unit]
        rows = rows + change.reshape(rows.shape).to(rows.dtype)
        result = {self.weight.name: LocalChange(unit, rows)}
        if self.bias:
            biases = base[self.bias.name].detach()[unit]
            shift = torch.where(self.is_bias[safe], live, 0).sum(dim=1)
            result[self.bias.name] = LocalChange(unit, biases + shift.to(biases.dtype))
        return result

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove:
        """Directions of the coordinates from the first to the last one asked for."""
        first = int(torch.where(index >= 0, index, index.max()).min())
        last = int(index.max()) + 1
        # A bias has no direction: its place is any, its length along it zero.
        slot = torch.where(self.is_bias, 0, self.slot)[first:last]
        rows = self.basis[self.place[first:last], slot]
        safe = index.clamp_min(0)
        live, bias = torch.where(index >= 0, offsets, 0), self.is_bias[safe]
        return LinearMove(
            unit=self.unit[safe[:, 0]],
            rows=rows,
            places=(index - first).clamp_min(0),
            lengths=torch.where(bias, 0, live),
            shift=torch.where(bias, live, 0).sum(dim=1),
        )

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Row changes of coordinates (…, n) by one batched product; biases are read off."""
        table = pad(coordinates, (0, 1)).index_select(-1, self.sources.directions)
        by_unit = table.reshape(-1, *self.basis.shape[:2]).transpose(0, 1)
        change = self._all_units(torch.bmm(by_unit, self.basis).transpose(0, 1), 1)
        shape = coordinates.shape[:-1] + self.weight.shape
        result = {self.weight.name: change.reshape(shape).to(self.weight.dtype)}
        if self.bias:
            biases = self._all_units(coordinates.index_select(-1, self.sources.biases), -1)
            result[self.bias.name] = biases.to(self.bias.dtype)
        return result

    expand_many = expand

    def _all_units(self, changes: Tensor, axis: int) -> Tensor:
        """Changes of the units that have directions, with zeros for the others between them."""
        if self.units is None:
            return changes
        shape = list(changes.shape)
        shape[axis] = self.weight.rows
        return changes.new_zeros(shape).index_copy_(axis, self.units, changes)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Components of each row along its directions, and the biases."""
        rows = tensors[self.weight.name].detach().reshape(self.weight.rows, -1, 1)
        if self.units is not None:
            rows = rows[self.units]
        along = torch.bmm(self.basis, rows.to(self.basis.dtype)).squeeze(2)
        coordinates = along[self.place, self.slot.clamp_max(self.basis.shape[1] - 1)]
        if self.bias:
            biases = tensors[self.bias.name].detach()
            coordinates = torch.where(self.is_bias, biases[self.unit], coordinates)
        return coordinates
