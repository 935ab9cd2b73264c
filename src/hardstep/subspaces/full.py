"""The whole parameter space: Π = I, one block and one group per tensor."""

from dataclasses import dataclass

from hardstep.subspaces.base import BoundSubspace, IdentityMap
from hardstep.subspaces.layout import Layout


@dataclass(frozen=True, slots=True)
class Full:
    """Search every number. For small models, black boxes and discrete problems."""

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Nothing to draw: the coordinates are the tensors."""
        del particle_dim, seed
        return BoundSubspace(layout, tuple(IdentityMap(spec) for spec in layout))
