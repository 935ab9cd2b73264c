"""Hard selection of vertices, for ablations; the temperature plays no part.

    T_iv = 1/(P k) on the k best vertices of row i, 0 elsewhere (`Greedy`: k = 1)

Vertices that tie for the last places share what is left of them equally. No vertex is
preferred for its index, so a constant row has uniform weights and its particle stays put.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.errors import ConfigError
from hardstep.solvers.base import Plan, Potentials, Solver, check_problem


def _share_places(costs: Tensor, threshold: Tensor, places: int) -> Tensor:
    """Weights of the `places` best vertices, given the cost of the last of them, (P, 1)."""
    below, level = costs < threshold, costs == threshold
    left = places - below.sum(dim=1, keepdim=True)
    tied = left.to(costs.dtype) / level.sum(dim=1, keepdim=True)
    weights = torch.where(level, tied, below.to(costs.dtype))
    return weights.div_(places * costs.shape[0])


@dataclass(frozen=True, slots=True)
class Greedy(Solver):
    """All mass on the best vertex: the limit of the softmax as the temperature goes to 0."""

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan; tied best vertices share the mass equally.

        Raises:
            ConfigError: costs or temperature out of range.
        """
        del warm
        check_problem("Greedy", costs, temperature)
        return Plan(_share_places(costs, costs.amin(dim=1, keepdim=True), places=1))


@dataclass(frozen=True, slots=True)
class TopK(Solver):
    """Mass spread evenly over the `k` best vertices; less sensitive to noise than `Greedy`."""

    k: int

    def __post_init__(self) -> None:
        check_count("TopK: k", self.k)

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan; vertices tied at the boundary share the remaining places equally.

        Raises:
            ConfigError: costs or temperature out of range, or fewer than `k` vertices.
        """
        del warm
        check_problem("TopK", costs, temperature)
        if self.k > costs.shape[1]:
            raise ConfigError(
                f"TopK: k must be at most the number of vertices, {costs.shape[1]}, got {self.k}"
            )
        threshold = costs.kthvalue(self.k, dim=1, keepdim=True).values
        return Plan(_share_places(costs, threshold, self.k))
