"""Different subspaces for different tensors, chosen by name.

    PerTensor({"head.*": RowWise(None), "*": RowWise(2, redraw=1, share=0.02)})

A probe of a last layer costs a thousandth of one of a recurrent layer. Here the cheap tensors are
searched whole at every step, while units of the expensive ones take turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from hardstep import seeds
from hardstep.errors import ConfigError
from hardstep.subspaces.base import BlockMap, BoundSubspace, Subspace
from hardstep.subspaces.layout import Layout


@dataclass(frozen=True, slots=True)
class PerTensor:
    """Subspaces by patterns of names, as `fnmatch` reads them; the first that fits counts.

    Args:
        parts: Pattern to subspace. Every searched tensor needs one, so end with `"*"`.
    """

    parts: Mapping[str, Subspace]

    def __post_init__(self) -> None:
        if not isinstance(self.parts, Mapping) or not self.parts:
            raise ConfigError(
                'PerTensor: parts must be a dict such as {"head.*": RowWise(None), "*": '
                f"RowWise(2)}}, got {self.parts!r}"
            )
        for pattern, part in self.parts.items():
            if isinstance(part, type) or not callable(getattr(part, "bind", None)):
                raise ConfigError(
                    f"PerTensor: {pattern!r} must name a subspace such as RowWise(8), got {part!r}"
                )

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> BoundSubspace:
        """Bind every part to its tensors; a part without any is left out."""
        names = self._assign(layout)
        bound = [
            self.parts[pattern].bind(
                layout.restrict(chosen), particle_dim, seeds.derive(seed, "pertensor", number)
            )
            for number, (pattern, chosen) in enumerate(names.items())
            if chosen
        ]
        return BoundParts(layout, bound)

    def _assign(self, layout: Layout) -> dict[str, list[str]]:
        """The names of every part."""
        found: dict[str, list[str]] = {pattern: [] for pattern in self.parts}
        for spec in layout:
            pattern = next((p for p in self.parts if fnmatchcase(spec.name, p)), None)
            if pattern is None:
                raise ConfigError(
                    f"PerTensor: no part is for {spec.name!r}, only {', '.join(self.parts)}; add "
                    'one for "*"'
                )
            found[pattern].append(spec.name)
        return found


class BoundParts(BoundSubspace):
    """The coordinates of the parts, one part after the other."""

    def __init__(self, layout: Layout, parts: list[BoundSubspace]) -> None:
        self.parts = parts
        super().__init__(layout, self._gather())

    def _gather(self) -> tuple[BlockMap, ...]:
        return tuple(block_map for part in self.parts for block_map in part.maps)

    def expand(self, coordinates: Tensor) -> dict[str, Tensor]:
        """As of any subspace, tensors in the order of the layout."""
        return self._sort(super().expand(coordinates))

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """The same of several."""
        return self._sort(super().expand_many(coordinates))

    def _sort(self, changes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {spec.name: changes[spec.name] for spec in self.layout}

    def commit(self, step: int, move: Tensor) -> bool:
        """Tell every part of its share; true if coordinates of any changed their meaning."""
        pieces = torch.split(move, [part.dim for part in self.parts])
        changed = [part.commit(step, piece) for part, piece in zip(self.parts, pieces, strict=True)]
        self.maps = self._gather()
        return any(changed)

    def state_dict(self) -> dict[str, Tensor]:
        """What the parts keep."""
        return {
            f"{number}.{name}": value
            for number, part in enumerate(self.parts)
            for name, value in part.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Give every part what it kept."""
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            kept = {n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
            part.load_state_dict(kept)
        self.maps = self._gather()
