"""Solvers: from a cost matrix (particles, vertices) to a transport plan.

`RowSoftmax` (λ = 0), `Penalized` and `Sinkhorn` (λ = ∞) are one family; `Greedy` and `TopK` are
ablations; `Blockwise` applies any of them to each block of particles on its own,
`Standardized` makes any of them blind to the scale of the losses.
"""

from hardstep.solvers.base import Plan, Potentials, Solver, row_sums
from hardstep.solvers.blockwise import Blockwise
from hardstep.solvers.greedy import Greedy, TopK
from hardstep.solvers.penalized import Penalized
from hardstep.solvers.sinkhorn import Sinkhorn
from hardstep.solvers.softmax import RowSoftmax
from hardstep.solvers.standardized import Standardized

__all__ = [
    "Blockwise",
    "Greedy",
    "Penalized",
    "Plan",
    "Potentials",
    "RowSoftmax",
    "Sinkhorn",
    "Solver",
    "Standardized",
    "TopK",
    "row_sums",
]
