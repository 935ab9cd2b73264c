"""Your own discrete problem: MAX-CUT, split a graph's nodes so that most edges are cut.

    python examples/maxcut.py

An objective is any object with `losses(candidates)`: one number per candidate. A candidate moves
the numbers of one particle, here of two nodes, and node i is on one side where x_i >= 0. So only
those two can change sides, and what that changes is exact and cheap.
"""

import torch
from torch import Tensor

from hardstep import Candidates, PolyStep, presets


class MaxCut:
    """Minus the number of cut edges, so that less is better."""

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency  # (nodes, nodes), symmetric, 0 or 1

    def cut(self, sides: Tensor) -> Tensor:
        """Edges between the sides (±1)."""
        return (self.adjacency.sum() - sides @ self.adjacency @ sides) / 4

    def losses(self, candidates: Candidates) -> Tensor:
        """The cut now, minus what every candidate gains."""
        x = candidates.base["x"]
        sides = torch.where(x >= 0, 1.0, -1.0)
        index = candidates.particles.index[candidates.asked]  # (particles, 2), -1 on padding
        nodes = index.clamp_min(0)
        offsets = candidates.offsets.flatten(1, 2)  # (particles, candidates, 2)
        moved = torch.where(x[nodes][:, None] + offsets >= 0, 1.0, -1.0)
        flips = (moved != sides[nodes][:, None]) & (index >= 0)[:, None]
        gains = (self.adjacency @ sides)[nodes] * sides[nodes]  # of flipping one node alone
        first, second = nodes.unbind(1)
        shared = 2 * self.adjacency[first, second] * sides[first] * sides[second]
        gain = (flips * gains[:, None]).sum(2) - flips.all(2) * shared[:, None]
        return (-self.cut(sides) - gain).flatten()


def main(nodes: int = 400, steps: int = 200, seed: int = 0) -> float:
    """Cut a random graph of mean degree ten; returns the share of edges cut."""
    generator = torch.Generator().manual_seed(seed)
    upper = (torch.rand(nodes, nodes, generator=generator) < 10 / nodes).float().triu(1)
    problem = MaxCut(upper + upper.T)
    x = torch.randn(nodes, generator=generator)
    optimizer = PolyStep({"x": x}, presets.signs(steps), seed=seed)
    for _ in range(steps):
        optimizer.step(objective=problem)
    cut = float(problem.cut(torch.where(x >= 0, 1.0, -1.0)))
    print(f"{cut:.0f} of {upper.sum():.0f} edges cut")
    return cut / float(upper.sum())


if __name__ == "__main__":
    main()
