"""A subspace whose steps and probes are longer or shorter: θ = θ₀ + factor · Πz.

    PerTensor({"words.*": RowWise(1), "*": Scaled(RowWise(1, redraw=1, share=0.1), 0.01)})

All particles of a step have the same radii. Tensors of different scale, such as an embedding and
the layers behind it, need different ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from hardstep._checks import check_positive
from hardstep.errors import ConfigError
from hardstep.subspaces.base import BlockMap, BoundSubspace, LinearMove, LocalChange, Subspace
from hardstep.subspaces.layout import Layout


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another subspace, a step of length one in its coordinates being `factor` long in weights.

    Args:
        of: The other one.
        factor: What radii are multiplied by.
    """

    of: Subspace
    factor: float

    def __post_init__(self) -> None:
        if isinstance(self.of, type) or not callable(getattr(self.of, "bind", None)):
            raise ConfigError(f"Scaled: of must be a subspace such as RowWise(8), got {self.of!r}")
        check_positive("Scaled: factor", self.factor)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Bind the other one."""
        return BoundScaled(self.of.bind(layout, particle_dim, seed), self.factor)


class BoundScaled(BoundSubspace):
    """The maps of another bound subspace, scaled."""

    def __init__(self, inner: BoundSubspace, factor: float) -> None:
        self.inner, self.factor = inner, factor
        self.everywhere = inner.everywhere
        super().__init__(inner.layout, self._scale())

    def _scale(self) -> tuple[BlockMap, ...]:
        return tuple(ScaledMap(block_map, self.factor) for block_map in self.inner.maps)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """As of the other one, whose tensors may have an order."""
        return self.inner.expand(self.factor * coordinates)

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The same of several."""
        return self.inner.expand_many(self.factor * coordinates)

    def commit(self, step: int, move: Tensor) -> bool:
        """Tell the other one how far it moved."""
        changed = self.inner.commit(step, self.factor * move)
        self.maps = self._scale()
        return changed

    def state_dict(self) -> dict[str, Tensor]:
        """What the other one keeps."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Give it back."""
        self.inner.load_state_dict(state)
        self.maps = self._scale()


class ScaledMap(BlockMap):
    """A block whose coordinates are multiplied by a factor before they are read."""

    def __init__(self, inner: BlockMap, factor: float) -> None:
        super().__init__(inner.specs, inner.block.group_sizes)
        self.inner, self.factor = inner, factor
        self.orthonormal = inner.orthonormal and factor == 1
        self.memory = inner.memory

    def displace(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """See `BlockMap.displace`."""
        return self.inner.displace(base, index, self.factor * offsets)

    def local(
        self, base: Mapping[str, Tensor], index: Tensor, offsets: Tensor
    ) -> dict[str, LocalChange] | None:
        """See `BlockMap.local`."""
        return self.inner.local(base, index, self.factor * offsets)

    def changed_rows(self, index: Tensor) -> Tensor | None:
        """See `BlockMap.changed_rows`."""
        return self.inner.changed_rows(index)

    def linear(self, index: Tensor, offsets: Tensor) -> LinearMove | None:
        """See `BlockMap.linear`."""
        return self.inner.linear(index, self.factor * offsets)

    def directions(self, index: Tensor) -> Tensor | None:
        """Of the length of a coordinate's step."""
        directions = self.inner.directions(index)
        return None if directions is None else self.factor * directions

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """See `BlockMap.expand`."""
        return self.inner.expand(self.factor * coordinates)

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """See `BlockMap.expand_many`."""
        return self.inner.expand_many(self.factor * coordinates)

    def project(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The transpose, as of any map."""
        return self.factor * self.inner.project(tensors)
