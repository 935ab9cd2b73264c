"""MAX-SAT as an objective: variable i is true where x_i ≥ 0, the cost is falsified weight.

The same interface any discrete problem implements: `losses(candidates)`. Only the variables of
a candidate's particle can flip, so its cost is the current one plus an exact difference.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.evaluation import Candidates
from hardstep.tasks.maxsat.deltas import MAX_DIM, candidate_costs, count_true
from hardstep.tasks.maxsat.formula import Formula

NAME = "x"  # of the one tensor that is searched


class MaxSat:
    """The cost of candidates of one formula.

    The unit is weight of falsified clauses (their number, if they have no weights), at every
    size. A falsified hard clause costs more than all soft ones together.

    Args:
        formula: The clauses.
        clause_costs: What a falsified clause counts for the search, (clauses,); by default
            its weight.
    """

    def __init__(self, formula: Formula, clause_costs: NDArray[np.float64] | None = None) -> None:
        self.formula = formula
        self.costs = clause_costs if clause_costs is not None else plain_costs(formula)
        if self.costs.shape != (formula.num_clauses,):
            raise ConfigError(
                f"MaxSat: clause_costs must have one entry for each of {formula.num_clauses} "
                f"clauses, got shape {self.costs.shape}"
            )

    def losses(self, candidates: Candidates) -> Tensor:
        """One cost per candidate."""
        (tensor,) = candidates.base.values()
        numbers = tensor.detach().numpy().reshape(-1)
        num, vertices, probes, dim = candidates.offsets.shape
        if numbers.shape != (self.formula.num_variables,) or dim > MAX_DIM:
            raise ConfigError(
                f"MaxSat: needs one number for each of {self.formula.num_variables} variables "
                f"and particles of at most {MAX_DIM}, got {numbers.shape} and {dim}; search "
                "the full space"
            )
        counts = self.true_literals(numbers >= 0)
        differences = candidate_costs(
            candidates.particles.index[candidates.rows].numpy(),
            candidates.offsets.reshape(num, vertices * probes, dim).numpy(),
            numbers,
            counts,
            self.formula.occurrence_starts,
            self.formula.occurrences,
            self.costs,
        )
        here = float(self.costs[counts == 0].sum())
        return torch.from_numpy(differences.reshape(-1) + here)

    def true_literals(self, assignment: NDArray[np.bool_]) -> NDArray[np.int32]:
        """How many literals of each clause hold."""
        counts: NDArray[np.int32] = count_true(
            self.formula.starts, self.formula.literals, assignment
        )
        return counts


def plain_costs(formula: Formula) -> NDArray[np.float64]:
    """Weights; a hard clause costs more than all soft ones together."""
    costs = formula.weights.astype(np.float64)
    if formula.hard is not None:
        costs[formula.hard] = float(formula.total_weight) + 1.0
    return costs
