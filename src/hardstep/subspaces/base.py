"""The subspace protocol: coordinates in, changes of tensors out.

A `Subspace` is a setting. Bound to a layout it becomes a `BoundSubspace`: blocks of
coordinates (each touching the tensors it names), cut into groups that no particle straddles.
A linear one is a matrix Π, θ = θ₀ + Πz; it says whether ΠᵀΠ = I, which the theory asks for.
Every block has a `BlockMap`, its share of Π.

The tensors themselves are the truth: a bound subspace only ever computes *changes* from the
values it is given, so weights edited between steps are kept.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from hardstep._memory import format_bytes
from hardstep.errors import CapacityError, ConfigError
from hardstep.subspaces.layout import Layout, TensorSpec


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive coordinates that change the same tensors."""

    names: tuple[str, ...]
    group_sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many coordinates the block has."""
        return sum(self.group_sizes)


class LocalChange(NamedTuple):
    """One changed row of a tensor's axis 0 per candidate."""

    unit: Tensor  # (n,)
    rows: Tensor  # (n, *shape[1:]), the new weight rows


class LinearMove(NamedTuple):
    """One changed unit per candidate, as a combination of directions within its row."""

    unit: Tensor  # (n,)
    directions: Tensor | None  # (k, columns); nothing if they are the axes of the row
    places: Tensor  # (n, d_p) which of them
    lengths: Tensor  # (n, d_p) how far along each
    shift: Tensor  # (n,) how far the unit's bias moves


class BlockMap(ABC):
    """How one block turns coordinates into changes of its tensors."""

    orthonormal = True  # whether the columns of its share of Π are, to rounding
    memory = 0  # bytes held by bases

    def __init__(self, specs: tuple[TensorSpec, ...], group_sizes: tuple[int, ...]) -> None:
        self.specs = specs
        self.block = Block(tuple(spec.name for spec in specs), group_sizes)

    @abstractmethod
    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """The block's tensors after moving some of its coordinates, stacked (n, *shape).

        Args:
            base: Current tensors.
            index: Coordinates within the block, (n, d_p); −1 on padding.
            offsets: How far each of them moves, (n, d_p); anything on padding.
        """

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """`displace` as one changed row of axis 0 per tensor, where that is all that changes.

        Arguments as for `displace`; nothing if some candidate changes more than one row.
        """
        del base, index, offsets
        return None

    def changed_rows(self, index: Tensor) -> Tensor | None:
        """The rows alone that `local` changes."""
        del index
        return None

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """The same change without carrying it out, where rows are combinations of directions."""
        del index, offsets
        return None

    def directions(self, index: Tensor) -> Tensor | None:
        """Dense directions in the one tensor, (n, *shape), anything where the index is −1."""
        del index
        return None

    @abstractmethod
    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The change of every tensor when all coordinates (n,) move at once: Πz."""

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """`expand` of several vectors (N, n), stacked (N, *shape); equal to rounding."""
        changes = [self.expand(vector) for vector in coordinates]
        return {name: torch.stack([change[name] for change in changes]) for name in changes[0]}

    @abstractmethod
    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Πᵀ of the tensors, (n,)."""


class BoundSubspace:
    """A subspace of one layout: a map for every block, no two on the same tensor."""

    everywhere = False  # whether whole batches are the better way: all moves, few candidates a step

    def __init__(self, layout: Layout, maps: tuple[BlockMap, ...]) -> None:
        self.layout = layout
        self.maps = maps
        self.blocks = tuple(block_map.block for block_map in maps)
        self.starts = tuple(accumulate((block.size for block in self.blocks), initial=0))

    @property
    def dim(self) -> int:
        """The number of coordinates, d_sub."""
        return self.starts[-1]

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Sizes of all groups, block after block."""
        return tuple(size for block in self.blocks for size in block.group_sizes)

    @property
    def orthonormal(self) -> bool:
        """Whether ΠᵀΠ = I holds (to rounding)."""
        return all(block_map.orthonormal for block_map in self.maps)

    @property
    def memory(self) -> int:
        """Bytes held by bases."""
        return sum(block_map.memory for block_map in self.maps)

    def displace(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """See `BlockMap.displace`."""
        return self.maps[block].displace(base, index, offsets)

    def local(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """See `BlockMap.local`."""
        return self.maps[block].local(base, index, offsets)

    def changed_rows(self, block: int, index: Tensor) -> Tensor | None:
        """See `BlockMap.changed_rows`."""
        return self.maps[block].changed_rows(index)

    def linear(self, block: int, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """See `BlockMap.linear`."""
        return self.maps[block].linear(index, offsets)

    def directions(self, block: int, index: Tensor) -> Tensor | None:
        """See `BlockMap.directions`."""
        return self.maps[block].directions(index)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The change of every tensor when all coordinates (n,) move at once: Πz."""
        changes: dict[str, Tensor] = {}
        for block_map, piece in zip(self.maps, self.split(coordinates), strict=True):
            changes |= block_map.expand(piece)
        return changes

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """`expand` of several vectors (N, n), stacked (N, *shape); equal to rounding."""
        changes: dict[str, Tensor] = {}
        for block_map, piece in zip(self.maps, self.split(coordinates), strict=True):
            changes |= block_map.expand_many(piece)
        return changes

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Πᵀ of the tensors, (n,)."""
        dtype = self.layout.dtype
        return torch.cat([block_map.project(tensors).to(dtype) for block_map in self.maps])

    def commit(self, step: int, move: Tensor) -> bool:
        """Take note of a move (n,); true if the meaning of the coordinates changed."""
        del step, move
        return False

    def state_dict(self) -> dict[str, Tensor]:
        """What cannot be derived from the seed."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if state:
            raise ConfigError(f"{type(self).__name__} keeps no state, got {sorted(state)}")

    def split(self, coordinates: Tensor) -> list[Tensor]:
        """Coordinates (…, n) cut into blocks."""
        return list(torch.split(coordinates, [block.size for block in self.blocks], dim=-1))


class Subspace(Protocol):
    """A choice of coordinates, before it meets a model."""

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """This subspace for the tensors of a layout."""
        ...


class IdentityMap(BlockMap):
    """Every number of the tensor is a coordinate."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__((spec,), (spec.numel,))
        self.spec = spec
        self.columns = spec.columns if spec.is_matrix else None

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Copies with d_p numbers changed each."""
        stack = stack_copies(base[self.spec.name], len(index))
        change = torch.where(index >= 0, offsets, 0).to(stack.dtype)
        stack.view(len(index), -1).scatter_add_(1, index.clamp_min(0), change)
        return {self.spec.name: stack}

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """The changed row, if every particle lies within one."""
        move = self.linear(index, offsets)
        if move is None:
            return None
        rows = base[self.spec.name].detach()[move.unit]
        flat = rows.reshape(len(index), -1)
        flat = flat.scatter_add(1, move.places, move.lengths.to(flat.dtype))
        return {self.spec.name: LocalChange(move.unit, flat.reshape(rows.shape))}

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """Axes of a row, if every particle lies within one."""
        if self.columns is None:
            return None
        real = index >= 0
        unit = index.div(self.columns, rounding_mode="floor")
        if not bool((unit == unit[:, :1])[real].all()):
            return None
        places = (index % self.columns).clamp_min(0)
        lengths = torch.where(real, offsets, 0)
        return LinearMove(unit[:, 0], None, places, lengths, offsets.new_zeros(len(index)))

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The coordinates (…, n) in the tensor's shape."""
        shape = coordinates.shape[:-1] + self.spec.shape
        return {self.spec.name: coordinates.to(self.spec.dtype).reshape(shape)}

    expand_many = expand

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The tensor, flat."""
        return tensors[self.spec.name].detach().reshape(-1)


def stack_copies(tensor: Tensor, num: int) -> Tensor:
    """`num` independent copies of a tensor, stacked."""
    return tensor.detach().unsqueeze(0).repeat(num, *[1] * tensor.dim())


def check_capacity(name: str, needed: int, max_bytes: int | None, alternative: str) -> None:
    """Refuse a projection that would not fit, with the numbers and a way out."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = max_bytes if max_bytes is not None else physical // 2
    if needed > limit:
        raise CapacityError(
            f"{name}: its projection needs {format_bytes(needed)} and {format_bytes(limit)} are "
            f"allowed (half the memory unless max_bytes says otherwise); use {alternative}"
        )
