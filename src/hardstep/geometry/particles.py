"""Coordinates cut into particles of a fixed dimension.

Coordinates come in groups (a tensor, or one unit's row with its bias). Each group is padded
to a multiple of d_p, so that no particle straddles two groups. Padding is inert: it reads as
zero and whatever is written to it is dropped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from hardstep.errors import ConfigError


def num_particles(size: int, dim: int) -> int:
    """How many particles of dimension `dim` hold `size` coordinates."""
    return -(-size // dim)


class ParticleMap:
    """The two-way map between a coordinate vector (n,) and particles (P, d_p)."""

    def __init__(self, group_sizes: Sequence[int], particle_dim: int) -> None:
        if particle_dim < 1 or any(size < 1 for size in group_sizes) or not group_sizes:
            raise ConfigError(
                "ParticleMap: group sizes and particle_dim must be at least 1, "
                f"got {list(group_sizes)} and {particle_dim}"
            )
        self.particle_dim = particle_dim
        sizes = torch.tensor(list(group_sizes), dtype=torch.long)
        counts = (sizes + particle_dim - 1) // particle_dim
        self.num_coordinates = int(sizes.sum())
        self.num_particles = int(counts.sum())
        self.group = torch.repeat_interleave(torch.arange(len(sizes)), counts)  # (P,)
        self.index = self._index(sizes, counts)  # (P, d_p), −1 on padding
        self.real = self.index >= 0
        self._slots = self.real.flatten().nonzero().squeeze(1)

    def _index(self, sizes: Tensor, counts: Tensor) -> Tensor:
        first_coordinate = torch.cumsum(sizes, 0) - sizes
        first_particle = torch.cumsum(counts, 0) - counts
        within = torch.arange(self.num_particles) - first_particle[self.group]
        offset = within[:, None] * self.particle_dim + torch.arange(self.particle_dim)
        inside = offset < sizes[self.group][:, None]
        return torch.where(inside, first_coordinate[self.group][:, None] + offset, -1)

    def to_particles(self, coordinates: Tensor) -> Tensor:
        """(n,) -> (P, d_p), zero on padding."""
        flat = coordinates.new_zeros(self.num_particles * self.particle_dim)
        flat[self._slots.to(coordinates.device)] = coordinates
        return flat.reshape(self.num_particles, self.particle_dim)

    def to_coordinates(self, particles: Tensor) -> Tensor:
        """(P, d_p) -> (n,), dropping the padding."""
        return particles.reshape(-1)[self._slots.to(particles.device)]
