"""MAX-SAT as an objective: variable i is true where x_i ≥ 0, the cost is falsified weight.

The same interface any discrete problem implements: `losses(candidates)`. Only the variables of
a candidate's particle can flip, so its cost is the current one plus an exact difference.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.evaluation import Candidates
from hardstep.geometry import ParticleMap
from hardstep.tasks.maxsat.deltas import candidate_costs, count_true, flip_costs, shared_clauses
from hardstep.tasks.maxsat.formula import Formula

NAME = "x"  # of the one tensor that is searched


class Standing(NamedTuple):
    """How good an assignment is; smaller is better, hard clauses first."""

    hard: int  # hard clauses falsified
    weight: int  # weight of the soft clauses falsified


class MaxSat:
    """The cost of candidates of one formula.

    The unit is weight of falsified clauses (their number, if they have no weights), at every
    size. A falsified hard clause costs more than all soft ones together.

    Args:
        formula: The clauses.
        clause_costs: What a falsified clause counts for the search, (clauses,); by default
            its weight. May be changed between steps.
    """

    def __init__(self, formula: Formula, clause_costs: NDArray[np.float64] | None = None) -> None:
        self.formula = formula
        self.costs = clause_costs if clause_costs is not None else plain_costs(formula)
        if self.costs.shape not in ((formula.num_clauses,), (1,)):
            raise ConfigError(
                f"MaxSat: clause_costs must have one entry for each of {formula.num_clauses} "
                f"clauses, got shape {self.costs.shape}"
            )
        small = formula.num_clauses == 0 or int(formula.lengths.max()) < 256
        self.counts: NDArray[np.integer] = np.zeros(formula.num_clauses, np.uint8)
        if not small:
            self.counts = self.counts.astype(np.int32)
        self.standing: Standing | None = None  # of the assignment looked at last
        plain = plain_costs(formula)
        self._same_weight = int(plain[0]) if plain.size == 1 and formula.hard is None else 0
        self._particles: ParticleMap | None = None

    def losses(self, candidates: Candidates) -> Tensor:
        """One cost per candidate."""
        numbers, formula = self._numbers(candidates), self.formula
        if candidates.particles is not self._particles:
            self._list_shared(candidates)
        values = numbers >= 0
        self.stand(values)
        flips = flip_costs(
            values, self.counts, formula.occurrence_starts, formula.occurrences, self.costs
        )
        num, vertices, probes, dim = candidates.offsets.shape
        differences = candidate_costs(
            candidates.rows.numpy(),
            self._places,
            candidates.offsets.reshape(num, vertices * probes, dim).numpy(),
            numbers,
            flips,
            self._shared,
            formula.starts,
            formula.literals,
            self.counts,
            self.costs,
        )
        return torch.from_numpy(differences.reshape(-1)).add_(self._cost_here())

    def stand(self, values: NDArray[np.bool_]) -> Standing:
        """How good an assignment is; `counts` then holds its true literals per clause."""
        formula = self.formula
        count_true(formula.starts, formula.literals, values, self.counts)
        falsified, hard = self.counts == 0, 0
        if formula.hard is not None:
            hard = int(np.count_nonzero(falsified & formula.hard))
        if self._same_weight:
            weight = int(np.count_nonzero(falsified)) * self._same_weight
        else:
            weight = int(formula.weights[falsified].sum())
        self.standing = Standing(hard, weight)
        return self.standing

    def _cost_here(self) -> float:
        falsified = self.counts == 0
        if self.costs.size == 1:
            return float(self.costs[0]) * int(np.count_nonzero(falsified))
        return float(self.costs[falsified].sum())

    def _numbers(self, candidates: Candidates) -> NDArray[np.floating]:
        (tensor,) = candidates.base.values()
        numbers: NDArray[np.floating] = tensor.detach().numpy().reshape(-1)
        if numbers.size != self.formula.num_variables:
            raise ConfigError(
                f"MaxSat: needs one number for each of {self.formula.num_variables} variables, "
                f"got {numbers.size}"
            )
        return numbers

    def _list_shared(self, candidates: Candidates) -> None:
        """What depends on how variables are grouped, once."""
        particles = candidates.particles
        numbered = torch.arange(particles.num_coordinates, dtype=torch.float64)
        (expanded,) = candidates.subspace.expand(numbered).values()
        if not torch.equal(expanded.reshape(-1).double(), numbered):
            raise ConfigError("MaxSat: coordinates must be the variables; use subspace=Full()")
        self._particles, self._places = particles, particles.index.numpy()
        particle_of = np.empty(self.formula.num_variables, np.int32)
        owner = np.arange(particles.num_particles, dtype=np.int32)[:, None]
        real = self._places >= 0
        particle_of[self._places[real]] = np.broadcast_to(owner, self._places.shape)[real]
        self._shared = shared_clauses(
            self.formula.starts, self.formula.literals, particle_of, particles.num_particles
        )


def plain_costs(formula: Formula) -> NDArray[np.float64]:
    """Weights, a single one if they are all the same; a hard clause costs more than all soft ones.

    Returns:
        (clauses,) or (1,).
    """
    weights = formula.weights
    if formula.hard is None and weights.size and bool((weights == weights[0]).all()):
        return weights[:1].astype(np.float64)
    costs = weights.astype(np.float64)
    if formula.hard is not None:
        costs[formula.hard] = float(formula.total_weight) + 1.0
    return costs
