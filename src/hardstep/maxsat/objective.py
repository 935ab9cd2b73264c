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
from hardstep.maxsat.deltas import assignment_costs, candidate_costs, count_true, flip_costs
from hardstep.maxsat.formula import Formula, require
from hardstep.maxsat.index import list_shared
from hardstep.maxsat.pieces import run_in_pieces
from hardstep.subspaces import BoundSubspace

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
        plain = plain_costs(formula)
        self.costs = clause_costs if clause_costs is not None else plain
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
        # As it is in the formula: the float in `plain` has lost units of one above 2**53.
        same = plain.size == 1 and formula.hard is None
        self._same_weight = int(formula.weights[0]) if same else 0
        self._particles: ParticleMap | None = None

    def losses(self, candidates: Candidates) -> Tensor:
        """One cost per candidate."""
        numbers = self._numbers(candidates)
        if candidates.particles is not self._particles:
            self._list_shared(candidates)
        values = numbers >= 0
        falsified = self._find_falsified(values)
        self.standing = self._standing(falsified)
        differences = self._differences(candidates, numbers, self._flip_costs(values))
        return torch.from_numpy(differences.reshape(-1)).add_(self._cost(falsified))

    def stand(self, values: NDArray[np.bool_]) -> Standing:
        """How good an assignment is; `counts` then holds its true literals per clause."""
        self.standing = self._standing(self._find_falsified(values))
        return self.standing

    def _find_falsified(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        formula, counts = self.formula, self.counts
        run_in_pieces(
            count_true, counts.size, formula.literals.size,
            formula.starts, formula.literals, values, counts,
        )  # fmt: skip
        falsified: NDArray[np.bool_] = self.counts == 0
        return falsified

    def _flip_costs(self, values: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What flipping each variable alone would cost, (variables,)."""
        formula, result = self.formula, np.empty(values.size)
        run_in_pieces(
            flip_costs, values.size, formula.literals.size,
            values, self.counts, formula.occurrence_starts, formula.occurrences, self.costs, result,
        )  # fmt: skip
        return result

    def _differences(
        self, candidates: Candidates, numbers: NDArray[np.floating], flips: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What each candidate costs more than the current point, (rows, candidates)."""
        formula, (num, vertices, probes, dim) = self.formula, candidates.offsets.shape
        offsets = candidates.offsets.reshape(num, vertices * probes, dim).numpy()
        result = np.empty(offsets.shape[:2])
        run_in_pieces(
            candidate_costs, num, offsets.size + vertices * probes * self._shared[1].size,
            candidates.asked.numpy(), self._places, offsets, numbers, flips, self._shared,
            formula.occurrence_starts, formula.occurrences, self.counts, self.costs, result,
        )  # fmt: skip
        return result

    def _standing(self, falsified: NDArray[np.bool_]) -> Standing:
        formula, hard = self.formula, 0
        if formula.hard is not None:
            hard = int(np.count_nonzero(falsified & formula.hard))
        if self._same_weight:
            return Standing(hard, int(np.count_nonzero(falsified)) * self._same_weight)
        return Standing(hard, int(formula.weights[falsified].sum()))

    def _cost(self, falsified: NDArray[np.bool_]) -> float:
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
        if not keeps_coordinates(candidates.subspace, particles.num_coordinates):
            raise ConfigError("MaxSat: coordinates must be the variables; use subspace=Full()")
        self._particles, self._places = particles, particles.index.numpy()
        particle_of = np.empty(self.formula.num_variables, np.int32)
        owner = np.arange(particles.num_particles, dtype=np.int32)[:, None]
        real = self._places >= 0
        particle_of[self._places[real]] = np.broadcast_to(owner, self._places.shape)[real]
        self._shared = list_shared(
            self.formula.starts, self.formula.literals, particle_of, particles.num_particles
        )


def keeps_coordinates(subspace: BoundSubspace, size: int) -> bool:
    """Whether coordinate i is number i of the one tensor, for all of them.

    Their numbers are sent through digit by digit, since a float32 holds none above 2**24.
    """
    numbered = torch.arange(size)
    for shift in range(0, max(1, size.bit_length()), 8):
        digit = ((numbered >> shift) & 255).to(subspace.layout.dtype)
        (expanded,) = subspace.expand(digit).values()
        if not torch.equal(expanded.reshape(-1), digit):
            return False
    return True


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


def population_costs(formula: Formula, assignments: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Falsified weight of each row of `assignments` (N, variables), in the unit of `MaxSat`."""
    require(
        assignments.dtype == np.bool_ and assignments.shape[1:] == (formula.num_variables,),
        f"assignments are rows of {formula.num_variables} booleans, "
        f"got {assignments.dtype} of shape {assignments.shape}",
    )
    costs = plain_costs(formula) if formula.num_clauses else np.ones(1)
    result, groups = np.zeros(len(assignments)), -(-len(assignments) // 64)
    run_in_pieces(
        assignment_costs, groups, groups * formula.literals.size,
        formula.starts, formula.literals, assignments, costs, result,
    )  # fmt: skip
    return result
