"""How the directions within a unit's weight row are drawn; `RowWise` takes one of these."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hardstep._linalg import signed_qr


class RowBasis(Protocol):
    """Orthonormal directions within the rows of a weight (units, columns)."""

    def memory(self, shape: tuple[int, int], slots: int, dtype: torch.dtype) -> int:
        """Bytes of `draw`'s result."""
        ...

    def draw(
        self, shape: tuple[int, int], slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """(units, slots, columns), orthonormal in the last two for every unit."""
        ...


@dataclass(frozen=True, slots=True)
class HaarRows:
    """An independent random basis per unit: the strongest, and the default."""

    def memory(self, shape: tuple[int, int], slots: int, dtype: torch.dtype) -> int:
        """One basis per unit."""
        units, columns = shape
        return units * slots * columns * dtype.itemsize

    def draw(
        self, shape: tuple[int, int], slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Q of the thin QR of one Gaussian matrix per unit."""
        gaussian = torch.randn(*shape, slots, generator=generator, dtype=dtype)
        return signed_qr(gaussian).transpose(1, 2).contiguous()


@dataclass(frozen=True, slots=True)
class SharedRows:
    """One random basis for all units of a layer: d_out times less memory, trains a bit worse."""

    def memory(self, shape: tuple[int, int], slots: int, dtype: torch.dtype) -> int:
        """One basis."""
        return slots * shape[1] * dtype.itemsize

    def draw(
        self, shape: tuple[int, int], slots: int, generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """The same Q for every unit, stored once."""
        units, columns = shape
        gaussian = torch.randn(columns, slots, generator=generator, dtype=dtype)
        return signed_qr(gaussian).T.contiguous().expand(units, -1, -1)
