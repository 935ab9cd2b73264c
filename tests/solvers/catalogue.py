"""Every kind of solver, and the problems several test files share."""

import math

import numpy as np
import torch
from torch import Tensor

from hardstep.solvers import (
    Blockwise,
    Greedy,
    Penalized,
    RowSoftmax,
    Sinkhorn,
    Solver,
    TopK,
)


def catalogue(max_iterations: int = 2000, tolerance: float = 1e-11) -> list[Solver]:
    """One solver of every kind; `TopK(2)` needs two vertices."""
    limits = {"max_iterations": max_iterations, "tolerance": tolerance}
    return [
        RowSoftmax(),
        Greedy(),
        TopK(2),
        Penalized(0.0, **limits),
        Penalized(0.7, **limits),
        Penalized(math.inf, **limits),
        Sinkhorn(**limits),
        Sinkhorn(relaxation=1.5, **limits),
        Sinkhorn(relaxation=0.5, **limits),
        Sinkhorn(anderson=4, **limits),
    ]


def blockwise_catalogue(num_rows: int, **limits: float) -> list[Solver]:
    """The catalogue, and iterative solvers bound to two blocks of rows."""
    solvers = catalogue(**limits)
    if num_rows < 2:
        return solvers
    sizes = (1, num_rows - 1)
    return solvers + [Blockwise(inner).bind(sizes) for inner in (solvers[4], solvers[6])]


def specification_costs() -> Tensor:
    """The 12 x 5 instance of group H of the theory checks; meant for temperature 0.1."""
    costs = np.random.default_rng(0).uniform(size=(12, 5))
    costs[:, 0] -= 0.3
    return torch.from_numpy(costs - costs.min())


def random_costs(num_particles: int, num_vertices: int, seed: int = 0) -> Tensor:
    """Uniform costs in float64, the first vertex better than the others."""
    generator = torch.Generator().manual_seed(seed)
    costs = torch.rand(num_particles, num_vertices, generator=generator, dtype=torch.float64)
    costs[:, 0] -= 0.3
    return costs
