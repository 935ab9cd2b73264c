"""Rotations of a particle's polytope, one per particle and step.

Haar: the Q of a Gaussian matrix's QR with the signs of R's diagonal moved into Q is uniform
on O(d) (Mezzadri 2007); flipping one column where det < 0 makes it uniform on SO(d). For
d = 2 a rotation is an angle.

Biased: the first column is the particle's previous move, normalized, the rest is random.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from hardstep._linalg import signed_qr


class Rotation(Protocol):
    """Draws one rotation per particle.

    One with an attribute `looks_back` that is false does not read the values of `previous_move`, so
    that it can be drawn before they are known.
    """

    def draw(self, previous_move: Tensor, generator: torch.Generator) -> Tensor:
        """Rotations (P, d_p, d_p) for particles that last moved by `previous_move` (P, d_p)."""
        ...


def haar(num: int, dim: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """`num` independent rotations, uniform on SO(dim)."""
    if dim == 1:
        return torch.ones(num, 1, 1, dtype=dtype)
    if dim == 2:
        angle = 2 * math.pi * torch.rand(num, generator=generator, dtype=dtype)
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([cos, -sin, sin, cos], dim=1).reshape(num, 2, 2)
    gaussian = torch.randn(num, dim, dim, generator=generator, dtype=dtype)
    return _make_proper(signed_qr(gaussian))


def _make_proper(q: Tensor) -> Tensor:
    """Flip the last column where the determinant is −1."""
    last = torch.where(torch.linalg.det(q) < 0, -1.0, 1.0).to(q.dtype)
    q = q.clone()
    q[:, :, -1] *= last[:, None]
    return q


@dataclass(frozen=True, slots=True)
class Haar:
    """Independent uniform rotations: what the theory assumes."""

    looks_back: ClassVar[bool] = False

    def draw(self, previous_move: Tensor, generator: torch.Generator) -> Tensor:
        """Rotations that do not look at the previous move."""
        num, dim = previous_move.shape
        return haar(num, dim, generator, previous_move.dtype).to(previous_move.device)


@dataclass(frozen=True, slots=True)
class Biased:
    """First axis along the previous move: good where descent directions persist.

    A particle that has not moved has no direction to keep and gets a Haar rotation.
    """

    def draw(self, previous_move: Tensor, generator: torch.Generator) -> Tensor:
        """Rotations whose first column is the normalized previous move."""
        num, dim = previous_move.shape
        free = haar(num, dim, generator, previous_move.dtype).to(previous_move.device)
        length = previous_move.norm(dim=1)
        # Below this the direction is rounding noise, and its normalization could overflow.
        moved = length > torch.finfo(previous_move.dtype).tiny ** 0.5
        if dim == 1 or not bool(moved.any()):
            return free
        start = free.clone()
        start[:, :, 0] = previous_move / length.clamp_min(torch.finfo(length.dtype).tiny)[:, None]
        # The signed QR keeps the sign of column one and spans the rest from the Haar columns.
        biased = _make_proper(signed_qr(torch.where(moved[:, None, None], start, free)))
        return torch.where(moved[:, None, None], biased, free)
