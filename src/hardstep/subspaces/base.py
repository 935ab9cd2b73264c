"""The subspace protocol: coordinates in, changes of tensors out.

A `Subspace` is a setting. Bound to a layout it becomes a `BoundSubspace`: blocks of
coordinates (each touching the tensors it names), cut into groups that no particle straddles.
A linear one is a matrix Π, θ = θ₀ + Πz; it says whether ΠᵀΠ = I, which the theory asks for.

The tensors themselves are the truth: a bound subspace only ever computes *changes* from the
values it is given, so weights edited between steps are kept.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from numbers import Integral
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from hardstep.errors import CapacityError, ConfigError
from hardstep.subspaces.layout import Layout


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
    rows: Tensor  # (n, *shape[1:]), the new rows


class LinearMove(NamedTuple):
    """One changed unit per candidate, as a combination of directions within its row."""

    unit: Tensor  # (n,)
    rows: Tensor | None  # (k, columns) directions; nothing if they are the axes of the row
    places: Tensor  # (n, d_p) which of them
    lengths: Tensor  # (n, d_p) how far along each
    shift: Tensor  # (n,) how far the unit's bias moves


class BoundSubspace(ABC):
    """A subspace of one layout."""

    everywhere = False  # whether whole batches are the better way: all moves, few candidates a step

    def __init__(self, layout: Layout, blocks: tuple[Block, ...]) -> None:
        self.layout = layout
        self.blocks = blocks
        self.starts = tuple(accumulate((block.size for block in blocks), initial=0))

    @property
    def dim(self) -> int:
        """The number of coordinates, d_sub."""
        return self.starts[-1]

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Sizes of all groups, block after block."""
        return tuple(size for block in self.blocks for size in block.group_sizes)

    @property
    @abstractmethod
    def orthonormal(self) -> bool:
        """Whether ΠᵀΠ = I holds (to rounding)."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes held by bases."""

    @abstractmethod
    def displaced(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """The block's tensors after moving some of its coordinates, stacked (n, *shape).

        Args:
            base: Current tensors.
            block: Which block.
            index: Coordinates within the block, (n, d_p); −1 on padding.
            offsets: How far each of them moves, (n, d_p); anything on padding.
        """

    def local(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """`displaced` as one changed row of axis 0 per tensor, where that is all that changes.

        Arguments as for `displaced`; nothing if some candidate changes more than one row.
        """
        del base, block, index, offsets
        return None

    def linear(self, block: int, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """The same change without carrying it out, where rows are combinations of directions."""
        del block, index, offsets
        return None

    def directions(self, block: int, index: Tensor) -> Tensor | None:
        """Dense directions of a block of one tensor, (n, *shape), zero where the index is −1."""
        del block, index
        return None

    @abstractmethod
    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The change of every tensor when all coordinates (n,) move at once: Πz."""

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """`expand` of several vectors (N, n), stacked (N, *shape); equal to rounding."""
        return expand_each(self.expand, coordinates)

    @abstractmethod
    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Πᵀ of the tensors, (n,)."""

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


def expand_each(
    expand: Callable[[Tensor], dict[str, Tensor]], coordinates: Tensor
) -> dict[str, Tensor]:
    """What a map of one vector makes of several (N, n), one after the other, stacked."""
    changes = [expand(vector) for vector in coordinates]
    return {name: torch.stack([change[name] for change in changes]) for name in changes[0]}


class Subspace(Protocol):
    """A choice of coordinates, before it meets a model."""

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """This subspace for the tensors of a layout."""
        ...


def layer_budget(rows: int, columns: int, rank: int) -> int:
    """The paper's dimension of a layer, (d_out + d_in)·rank, capped at the layer's size."""
    return min((rows + columns) * min(rank, rows, columns), rows * columns)


def check_rank(name: str, rank: int) -> None:
    """Refuse a rank that is no whole number, or below 1."""
    if not isinstance(rank, Integral):
        raise ConfigError(f"{name}: rank must be a whole number, got {rank!r}")
    if rank < 1:
        raise ConfigError(f"{name}: rank must be at least 1, got {rank}")


def check_capacity(name: str, needed: int, max_bytes: int | None, alternative: str) -> None:
    """Refuse a projection that would not fit, with the numbers and a way out."""
    limit = max_bytes if max_bytes is not None else _physical_memory() // 2
    if needed > limit:
        raise CapacityError(
            f"{name}: its projection needs {_readable(needed)} and {_readable(limit)} are "
            f"allowed (half the memory unless max_bytes says otherwise); use {alternative}"
        )


def _readable(num_bytes: int) -> str:
    """Bytes in the unit that suits them: 640 bytes, 12.50 MB, 3.00 GB."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.2f} {unit}"
    return f"{num_bytes:,} bytes"


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def itemsize(dtype: torch.dtype) -> int:
    """Bytes of one number."""
    return torch.empty(0, dtype=dtype).element_size()
