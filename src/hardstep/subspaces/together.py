"""Another subspace seen as one block: a candidate moves every tensor."""

from collections.abc import Mapping

from torch import Tensor

from hardstep.subspaces.base import Block, BoundSubspace


class Together(BoundSubspace):
    """All coordinates of a subspace in one group, or `dim` others that stand for them."""

    def __init__(self, inner: BoundSubspace, dim: int | None = None) -> None:
        names = tuple(spec.name for spec in inner.layout)
        super().__init__(inner.layout, (Block(names, (inner.dim if dim is None else dim,)),))
        self.inner = inner

    @property
    def orthonormal(self) -> bool:
        """As inside."""
        return self.inner.orthonormal

    @property
    def memory(self) -> int:
        """As inside."""
        return self.inner.memory

    def displaced(
        self, base: Mapping[str, Tensor], block: int, index: Tensor, offsets: Tensor
    ) -> dict[str, Tensor]:
        """All tensors after moves (n, dim), one number for every coordinate."""
        del block, index
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
