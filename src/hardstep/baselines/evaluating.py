"""Losses of parameter sets in which everything moves, by the evaluators PolyStep uses.

PolyStep's candidates move the coordinates of one particle. A rival's move all of them, so to an
evaluator they are candidates of one particle as large as the subspace. Tiles, memory, isolation,
common random numbers and the fallback to one at a time are then those of `hardstep.evaluation`.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from hardstep.errors import ObjectiveError
from hardstep.evaluation import Candidates, Objective, Span
from hardstep.geometry import ParticleMap
from hardstep.subspaces import BoundSubspace, Factors, JointSubspace


class Moved(Candidates):
    """Candidates of one particle that has every coordinate: there is nothing to look up."""

    def spans(self) -> Iterator[Span]:
        """All of them."""
        yield Span(0, 0, len(self))

    def coordinates(self, span: Span) -> tuple[Tensor, Tensor]:
        """The whole index for each."""
        offsets = self.offsets[0, span.start : span.end, 0]
        return self.particles.index.to(offsets.device).expand(len(offsets), -1), offsets

    def changed_thin(self, span: Span) -> tuple[dict[str, Tensor], dict[str, Factors]]:
        """Products as their factors."""
        changes, factors = self.subspace.expand_thin(self.coordinates(span)[1])
        whole = {name: self.base[name].detach() + change for name, change in changes.items()}
        return whole, factors


class Moves:
    """Parameter sets at a distance from the current ones, as candidates."""

    def __init__(self, subspace: BoundSubspace) -> None:
        self._subspace = JointSubspace(subspace)
        self._particles = ParticleMap((subspace.dim,), subspace.dim)

    def candidates(self, tensors: Mapping[str, Tensor], offsets: Tensor, seed: int) -> Candidates:
        """One parameter set per row.

        Args:
            tensors: Current values.
            offsets: How far each set is from them, (N, dim).
            seed: Of the random numbers that all their forward passes share.
        """
        rows = torch.zeros(1, dtype=torch.long)
        stacked = offsets[None, :, None, :]
        return Moved(tensors, self._subspace, self._particles, rows, stacked, seed)


def losses_of(candidates: Candidates, goal: Objective) -> Tensor:
    """Their losses (N,) in double precision on the CPU; N evaluations."""
    found = goal.losses(candidates)
    if found.shape != (len(candidates),):
        raise ObjectiveError(
            f"objective must return {len(candidates)} losses, got {tuple(found.shape)}"
        )
    return found.detach().double().cpu()
