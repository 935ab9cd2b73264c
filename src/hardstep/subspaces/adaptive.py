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
from hardstep._linalg import signed_qr
from hardstep.errors import ConfigError
from hardstep.subspaces.base import BoundSubspace, check_rank
from hardstep.subspaces.layerwise import check_layer_capacity, layer_part, orthonormal_rows
from hardstep.subspaces.layout import Layout
from hardstep.subspaces.parts import DensePart, Part, PartsSubspace


@dataclass(frozen=True, slots=True)
class Adaptive:
    """`LayerWise` with a displacement-biased redraw; an ablation of the paper."""

    rank: int
    every: int = 100
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        check_rank("Adaptive", self.rank)
        if self.every < 1:
            raise ConfigError(f"Adaptive: every must be at least 1, got {self.every}")

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Start as `LayerWise` does."""
        del particle_dim
        check_layer_capacity("Adaptive", self.rank, self.max_bytes, layout)
        parts = tuple(layer_part(layout, i, s, self.rank, seed) for i, s in enumerate(layout))
        return BoundAdaptive(layout, parts, self.every, seed)


class BoundAdaptive(PartsSubspace):
    """Bases derived from (seed, number of redraws, displacement at the last redraw)."""

    def __init__(self, layout: Layout, parts: tuple[Part, ...], every: int, seed: int) -> None:
        super().__init__(layout, parts)
        self.every = every
        self.seed = seed
        self.redraws = 0
        self.travelled = torch.zeros(self.dim, dtype=layout.dtype, device=layout.device)
        self.leads: dict[str, Tensor] = {}

    def commit(self, step: int, move: Tensor) -> bool:
        """Accumulate the displacement and redraw when it is time."""
        self.travelled = self.travelled + move
        if (step + 1) % self.every:
            return False
        changes = self.expand(self.travelled)
        self.redraws += 1
        self.leads = {part.specs[0].name: changes[part.specs[0].name] for part in self._dense()}
        self._redraw()
        self.travelled = torch.zeros_like(self.travelled)
        return True

    def _dense(self) -> list[DensePart]:
        return [part for part in self.parts if isinstance(part, DensePart)]

    def _redraw(self) -> None:
        for index, part in enumerate(self.parts):
            if isinstance(part, DensePart):
                part.directions = self._directions(index, part).to(part.directions.device)

    def _directions(self, index: int, part: DensePart) -> Tensor:
        """The basis after `redraws` redraws; before the first, as `layer_part` drew it."""
        num, length = part.directions.shape
        if not self.redraws:
            return orthonormal_rows(num, length, self.layout.dtype, self.seed, "layerwise", index)
        generator = seeds.generator(self.seed, "adaptive", index, self.redraws)
        matrix = torch.randn(length, num, generator=generator, dtype=part.directions.dtype)
        matrix = matrix.to(part.directions.device)
        lead = self.leads[part.specs[0].name].reshape(-1).to(matrix)
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
