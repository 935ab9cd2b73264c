"""A sketch of another subspace: a few random directions through all of it, new at every step.

θ = θ₀ + Π Q y, with Q (n × d_p) orthonormal and drawn again at every step. There is one particle,
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
from hardstep.subspaces.base import BlockMap, BoundSubspace, Subspace, check_capacity
from hardstep.subspaces.layout import Layout
from hardstep.subspaces.rowwise import RowWise

INNER = "of."  # prefix of what the subspace inside keeps


@dataclass(frozen=True, slots=True)
class Sketch:
    """As many random directions as a particle has dimensions, through all of another subspace.

    For when evaluations are scarce (`presets.sketch`). What a step has learned is in the weights
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
        needed = inner.memory + numbers * layout.dtype.itemsize
        check_capacity("Sketch", needed, self.max_bytes, "fewer directions or a smaller subspace")
        return BoundSketch(inner, particle_dim, seed)


class JointMap(BlockMap):
    """All coordinates of a subspace in one group, so that a candidate moves every tensor."""

    def __init__(self, inner: BoundSubspace, dim: int | None = None) -> None:
        super().__init__(tuple(inner.layout), (inner.dim if dim is None else dim,))
        self.inner = inner
        self.orthonormal = inner.orthonormal
        self.memory = inner.memory

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """All tensors after moves (n, dim), one number for every coordinate."""
        del index
        changes = self.expand_many(offsets)
        return {name: base[name].detach() + change for name, change in changes.items()}

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """As inside."""
        return self.inner.expand(coordinates)

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """As inside."""
        return self.inner.expand_many(coordinates)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """As inside."""
        return self.inner.project(tensors)


class JointSubspace(BoundSubspace):
    """Another subspace seen as one block: what baselines that move everything search in."""

    def __init__(self, inner: BoundSubspace) -> None:
        super().__init__(inner.layout, (JointMap(inner),))
        self.inner = inner


class SketchMap(JointMap):
    """A few directions Qᵀ (d_p, n) through the coordinates inside."""

    def __init__(self, inner: BoundSubspace, mixing: Tensor) -> None:
        super().__init__(inner, len(mixing))
        self.mixing = mixing
        self.memory += mixing.numel() * mixing.element_size()

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """Every tensor, changed everywhere."""
        moves = offsets.new_zeros(len(index), len(self.mixing))
        moves.scatter_add_(1, index.clamp_min(0), torch.where(index >= 0, offsets, 0))
        return super().displace(base, index, moves)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Πz of z = Qy."""
        return super().expand(coordinates @ self.mixing)

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The same of several."""
        return super().expand_many(coordinates @ self.mixing)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """QᵀΠᵀ of the tensors."""
        return self.mixing @ super().project(tensors)


class BoundSketch(BoundSubspace):
    """Directions derived from (seed, number of draws); fewer than d_p where there are no more."""

    everywhere = True

    def __init__(self, inner: BoundSubspace, particle_dim: int, seed: int) -> None:
        self.inner = inner
        self.seed = seed
        self.draws = 0
        self.sketch = SketchMap(inner, self._draw(min(particle_dim, inner.dim)))
        super().__init__(inner.layout, (self.sketch,))

    def _draw(self, num: int) -> Tensor:
        """Qᵀ, (num, n)."""
        generator = seeds.generator(self.seed, "sketch", self.draws)
        shape, dtype = (self.inner.dim, num), self.inner.layout.dtype
        gaussian = torch.randn(shape, generator=generator, dtype=dtype)
        return signed_qr(gaussian).T.to(self.inner.layout.device)

    def commit(self, step: int, move: Tensor) -> bool:
        """Draw the next directions."""
        self.inner.commit(step, move @ self.sketch.mixing)
        self.draws += 1
        self.sketch.mixing = self._draw(self.dim)
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
        self.sketch.mixing = self._draw(self.dim)
