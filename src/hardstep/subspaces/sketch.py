"""A sketch of another subspace: a few random directions through all of it, new at every step.

θ = θ₀ + Π Q y, with Q (n × d_p) orthonormal and drawn anew at every step. There is one particle,
so a step takes no more evaluations than the polytope has vertices, and each of them moves every
weight a little. That costs the evaluator what single units save it (nothing of a forward pass can
be kept); in return a handful of evaluations asks about all units at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._linalg import signed_qr
from hardstep.errors import ConfigError
from hardstep.subspaces.base import (
    BoundSubspace,
    Subspace,
    check_capacity,
    itemsize,
)
from hardstep.subspaces.layout import Layout
from hardstep.subspaces.rowwise import RowWise
from hardstep.subspaces.together import Together

INNER = "of."  # prefix of what the subspace inside keeps


@dataclass(frozen=True, slots=True)
class Sketch:
    """As many random directions as a particle has dimensions, through all of another subspace.

    For when evaluations are scarce (`presets.sketch`). What a step has learnt is in the weights
    alone, since coordinates change their meaning at every step: pair it with `WeightMomentum`.

    Args:
        of: The subspace they lie in. The smaller it is, the more of it a step sees.
        max_bytes: Refuse directions larger than this, with those of the subspace inside.
    """

    of: Subspace = field(default_factory=RowWise)
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.of, type) or not callable(getattr(self.of, "bind", None)):
            raise ConfigError(f"Sketch: of must be a subspace such as RowWise(8), got {self.of!r}")

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Bind the subspace inside, as coordinates without particles, and draw directions."""
        inner = self.of.bind(layout, 1, seed)
        numbers = inner.dim * min(particle_dim, inner.dim)
        needed = inner.memory + numbers * itemsize(layout.dtype)
        check_capacity("Sketch", needed, self.max_bytes, "fewer directions or a smaller subspace")
        return BoundSketch(inner, particle_dim, seed)


class BoundSketch(Together):
    """Directions derived from (seed, number of draws); fewer than d_p where there are no more."""

    everywhere = True

    def __init__(self, inner: BoundSubspace, particle_dim: int, seed: int) -> None:
        super().__init__(inner, min(particle_dim, inner.dim))
        self.seed = seed
        self.draws = 0
        self.mixing = self._draw()

    def _draw(self) -> Tensor:
        """Qᵀ, (d_p, n)."""
        generator = seeds.generator(self.seed, "sketch", self.draws)
        shape, dtype = (self.inner.dim, self.dim), self.layout.dtype
        gaussian = torch.randn(shape, generator=generator, dtype=dtype)
        return signed_qr(gaussian).T.to(self.layout.device)

    @property
    def memory(self) -> int:
        """Bytes of the directions and of those inside."""
        return super().memory + self.mixing.numel() * self.mixing.element_size()

    def displaced(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Every tensor, changed everywhere."""
        moves = offsets.new_zeros(len(index), self.dim)
        moves.scatter_add_(1, index.clamp_min(0), torch.where(index >= 0, offsets, 0))
        return super().displaced(base, block, index, moves)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Πz of z = Qy."""
        return super().expand(coordinates @ self.mixing)

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The same of several."""
        return super().expand_many(coordinates @ self.mixing)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """QᵀΠᵀ of the tensors."""
        return self.mixing @ super().project(tensors)

    def commit(self, step: int, move: Tensor) -> bool:
        """Draw the next directions."""
        self.inner.commit(step, move @ self.mixing)
        self.draws += 1
        self.mixing = self._draw()
        return True

    def state_dict(self) -> dict[str, Tensor]:
        """How often directions were drawn, and what the subspace inside keeps."""
        kept = {INNER + name: value for name, value in self.inner.state_dict().items()}
        return {"draws": torch.tensor(self.draws), **kept}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Draw the directions the state was saved with."""
        inside = {n.removeprefix(INNER): v for n, v in state.items() if n.startswith(INNER)}
        self.inner.load_state_dict(inside)
        self.draws = int(state["draws"])
        self.mixing = self._draw()
