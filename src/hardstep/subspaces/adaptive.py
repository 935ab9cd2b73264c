"""Layer-wise projections whose basis turns toward where the search has been going.

Every `every` steps the basis of each layer is redrawn with its first direction along the
layer's displacement since the last redraw, and the rest random and orthogonal to it.
Coordinates lose their meaning then, so the optimizer clears what it remembers of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._checks import check_count
from hardstep._linalg import signed_qr
from hardstep.subspaces.base import BlockMap, BoundSubspace
from hardstep.subspaces.layerwise import DenseMap, draw_directions, draw_layers
from hardstep.subspaces.layout import Layout


@dataclass(frozen=True, slots=True)
class Adaptive:
    """`LayerWise` with a displacement-biased redraw; an ablation of the paper."""

    rank: int
    every: int = 100
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_count("Adaptive: rank", self.rank)
        check_count("Adaptive: every", self.every)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Start as `LayerWise` does."""
        del particle_dim
        maps = draw_layers("Adaptive", layout, self.rank, self.max_bytes, seed)
        return BoundAdaptive(layout, maps, self.every, seed)


class BoundAdaptive(BoundSubspace):
    """Bases derived from (seed, number of redraws, displacement at the last redraw)."""

    def __init__(self, layout: Layout, maps: tuple[BlockMap, ...], every: int, seed: int) -> None:
        super().__init__(layout, maps)
        self.every = every
        self.seed = seed
        self.redraws = 0
        self.travelled = torch.zeros(self.dim, dtype=layout.dtype, device=layout.device)
        self.leads: dict[str, Tensor] = {}
        self._dense = [(i, found) for i, found in enumerate(maps) if isinstance(found, DenseMap)]

    def commit(self, step: int, move: Tensor) -> bool:
        """Accumulate the displacement and redraw when it is time."""
        self.travelled = self.travelled + move
        if (step + 1) % self.every:
            return False
        changes = self.expand(self.travelled)
        self.redraws += 1
        self.leads = {dense.specs[0].name: changes[dense.specs[0].name] for _, dense in self._dense}
        self._redraw()
        self.travelled = torch.zeros_like(self.travelled)
        return True

    def _redraw(self) -> None:
        for index, dense in self._dense:
            dense.basis = self._draw(index, dense).to(dense.basis.device)

    def _draw(self, index: int, dense: DenseMap) -> Tensor:
        """The basis after `redraws` redraws; before the first, as `draw_layers` drew it."""
        num, length = dense.basis.shape
        if not self.redraws:
            return draw_directions(num, length, self.layout.dtype, self.seed, "layerwise", index)
        generator = seeds.generator(self.seed, "adaptive", index, self.redraws)
        matrix = torch.randn(length, num, generator=generator, dtype=dense.basis.dtype)
        matrix = matrix.to(dense.basis.device)
        lead = self.leads[dense.specs[0].name].reshape(-1).to(matrix)
        if bool(lead.norm() > 0):
            matrix[:, 0] = lead / lead.norm()
        return signed_qr(matrix).T.contiguous()

    def state_dict(self) -> dict[str, Tensor]:
        """Redraw count, displacement since, and the directions the basis was built on."""
        leads = {f"lead.{name}": lead for name, lead in self.leads.items()}
        return {"redraws": torch.tensor(self.redraws), "travelled": self.travelled, **leads}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Rebuild the basis the state was saved with."""
        before, self.redraws = self.redraws, int(state["redraws"])
        self.travelled = state["travelled"].to(self.travelled)
        self.leads = {k[5:]: v for k, v in state.items() if k.startswith("lead.")}
        if before or self.redraws:
            self._redraw()
