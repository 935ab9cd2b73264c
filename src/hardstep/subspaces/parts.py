"""How one block turns coordinates into tensor changes; subspaces are made of these parts.

In `IdentityPart` a coordinate is one number of the tensor, in `DensePart` a dense direction
over one or several tensors, in `SparsePart` a sparse direction over one tensor; `RowsPart` (in
`rowspart`) has directions within one output unit's row, and its bias.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from hardstep.subspaces.base import Block, BoundSubspace, LinearMove, LocalChange, expand_each
from hardstep.subspaces.layout import Layout, TensorSpec


class Part(ABC):
    """A linear map from a block's coordinates to its tensors."""

    orthonormal = True
    memory = 0

    def __init__(self, specs: tuple[TensorSpec, ...], group_sizes: tuple[int, ...]) -> None:
        self.specs = specs
        self.block = Block(tuple(spec.name for spec in specs), group_sizes)

    @abstractmethod
    def displaced(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """See `BoundSubspace.displaced`."""

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """See `BoundSubspace.local`."""
        del base, index, offsets
        return None

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """See `BoundSubspace.linear`."""
        del index, offsets
        return None

    def dense(self, index: Tensor) -> Tensor | None:
        """See `BoundSubspace.directions`."""
        del index
        return None

    @abstractmethod
    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Πz for this block."""

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """See `BoundSubspace.expand_many`."""
        return expand_each(self.expand, coordinates)

    @abstractmethod
    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Πᵀθ for this block."""


def repeated(tensor: Tensor, num: int) -> Tensor:
    """`num` independent copies of a tensor, stacked."""
    return tensor.detach().unsqueeze(0).repeat(num, *[1] * tensor.dim())


def consecutive_runs(index: Tensor) -> list[tuple[int, int]]:
    """(start, end) of runs of probes that belong to the same particle."""
    _, counts = torch.unique_consecutive(index[:, 0], return_counts=True)
    ends = torch.cumsum(counts, 0).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


class IdentityPart(Part):
    """Every number of the tensor is a coordinate."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__((spec,), (spec.numel,))

    def displaced(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with d_p numbers changed each."""
        (spec,) = self.specs
        stack = repeated(base[spec.name], len(index))
        real = index >= 0
        change = torch.where(real, offsets, 0).to(stack.dtype)
        stack.view(len(index), -1).scatter_add_(1, index.clamp_min(0), change)
        return {spec.name: stack}

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """The changed row, if every particle lies within one."""
        (spec,) = self.specs
        if not spec.is_matrix:
            return None
        real = index >= 0
        unit = index.div(spec.columns, rounding_mode="floor")
        if not bool((unit == unit[:, :1])[real].all()):
            return None
        rows = base[spec.name].detach()[unit[:, 0]]
        flat = rows.reshape(len(index), -1)
        change = torch.where(real, offsets, 0).to(flat.dtype)
        flat = flat.scatter_add(1, (index % spec.columns).clamp_min(0), change)
        return {spec.name: LocalChange(unit[:, 0], flat.reshape(rows.shape))}

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """Axes of a row, if every particle lies within one."""
        (spec,) = self.specs
        real = index >= 0
        unit = index.div(spec.columns, rounding_mode="floor")
        if not spec.is_matrix or not bool((unit == unit[:, :1])[real].all()):
            return None
        places = (index % spec.columns).clamp_min(0)
        lengths = torch.where(real, offsets, 0)
        return LinearMove(unit[:, 0], None, places, lengths, offsets.new_zeros(len(index)))

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The coordinates (…, n) in the tensor's shape."""
        (spec,) = self.specs
        shape = coordinates.shape[:-1] + spec.shape
        return {spec.name: coordinates.to(spec.dtype).reshape(shape)}

    expand_many = expand

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The tensor, flat."""
        return tensors[self.specs[0].name].detach().reshape(-1)


class DensePart(Part):
    """Directions as rows of a matrix (n, N) over the concatenated tensors."""

    def __init__(self, specs: tuple[TensorSpec, ...], directions: Tensor) -> None:
        super().__init__(specs, (len(directions),))
        self.directions = directions
        self.memory = directions.numel() * directions.element_size()

    def displaced(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies plus offsets · directions, one matrix product per particle."""
        flat = offsets.new_empty(len(index), self.directions.shape[1])
        for start, end in consecutive_runs(index):
            live = index[start] >= 0
            rows = self.directions[index[start][live]]
            torch.matmul(offsets[start:end, live], rows, out=flat[start:end])
        return {
            spec.name: base[spec.name].detach()
            + part.reshape(len(index), *spec.shape).to(spec.dtype)
            for spec, part in zip(self.specs, self._cut(flat), strict=True)
        }

    def dense(self, index: Tensor) -> Tensor | None:
        """Rows of the matrix."""
        if len(self.specs) != 1:
            return None
        first = int(index[0])
        # Particles in a row need no copy of directions that may take gigabytes.
        if bool((index == torch.arange(first, first + len(index), device=index.device)).all()):
            rows = self.directions[first : first + len(index)]
        else:
            rows = self.directions[index.clamp_min(0)]
        return rows.reshape(len(index), *self.specs[0].shape)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The product z · directions, for z (…, n)."""
        flat = coordinates @ self.directions
        return {
            spec.name: part.reshape(coordinates.shape[:-1] + spec.shape).to(spec.dtype)
            for spec, part in zip(self.specs, self._cut(flat), strict=True)
        }

    expand_many = expand

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The product directions · θ."""
        flat = torch.cat([tensors[spec.name].detach().reshape(-1) for spec in self.specs])
        return self.directions @ flat.to(self.directions.dtype)

    def _cut(self, flat: Tensor) -> tuple[Tensor, ...]:
        return torch.split(flat, [spec.numel for spec in self.specs], dim=-1)


class SparsePart(Part):
    """±1/√s at s places per direction: cheap, unit length, but not orthogonal."""

    orthonormal = False

    def __init__(self, spec: TensorSpec, places: Tensor, signs: Tensor) -> None:
        super().__init__((spec,), (len(places),))
        self.places = places  # (n, s) positions in the flat tensor
        self.signs = signs  # (n, s) ±1, int8
        self.scale = 1 / math.sqrt(places.shape[1])
        self.memory = places.numel() * places.element_size() + signs.numel()

    def displaced(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with d_p·s numbers changed each."""
        (spec,) = self.specs
        stack = repeated(base[spec.name], len(index))
        safe = index.clamp_min(0)
        change = torch.where(index >= 0, offsets, 0)[:, :, None] * self.signs[safe] * self.scale
        places = self.places[safe].reshape(len(index), -1).long()
        stack.view(len(index), -1).scatter_add_(1, places, change.flatten(1).to(stack.dtype))
        return {spec.name: stack}

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Sum of scaled directions."""
        (spec,) = self.specs
        flat = coordinates.new_zeros(spec.numel)
        change = coordinates[:, None] * self.signs * self.scale
        flat.index_add_(0, self.places.reshape(-1).long(), change.reshape(-1))
        return {spec.name: flat.reshape(spec.shape).to(spec.dtype)}

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Signed sums over each direction's places."""
        flat = tensors[self.specs[0].name].detach().reshape(-1)
        return (flat[self.places.long()] * self.signs).sum(dim=1) * self.scale


class PartsSubspace(BoundSubspace):
    """A subspace that treats its blocks independently, one part each."""

    def __init__(self, layout: Layout, parts: tuple[Part, ...]) -> None:
        super().__init__(layout, tuple(part.block for part in parts))
        self.parts = parts

    @property
    def orthonormal(self) -> bool:
        """Whether every part's columns are; parts touch different tensors."""
        return all(part.orthonormal for part in self.parts)

    @property
    def memory(self) -> int:
        """Bytes held by all parts."""
        return sum(part.memory for part in self.parts)

    def displaced(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """The block's part does it."""
        return self.parts[block].displaced(base, index, offsets)

    def local(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """The block's part does it."""
        return self.parts[block].local(base, index, offsets)

    def linear(self, block: int, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """The block's part does it."""
        return self.parts[block].linear(index, offsets)

    def directions(self, block: int, index: Tensor) -> Tensor | None:
        """The block's part does it."""
        return self.parts[block].dense(index)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Changes of all tensors."""
        pieces = zip(self.parts, self.split(coordinates), strict=True)
        return {n: change for part, z in pieces for n, change in part.expand(z).items()}

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Stacked changes of all tensors."""
        pieces = zip(self.parts, self.split(coordinates), strict=True)
        return {n: change for part, z in pieces for n, change in part.expand_many(z).items()}

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """All parts' components, concatenated."""
        dtype = self.layout.dtype
        return torch.cat([part.project(tensors).to(dtype) for part in self.parts])
