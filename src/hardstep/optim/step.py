"""The two halves of a PolyStep update; the caller evaluates in between.

    propose   directions, reach, jitter   -> step targets and probes
    advance   proposal, losses at probes  -> the move of every particle

Both are pure, and both speak of displacements from the particles' current positions, since
the tensors themselves are the only record of where those are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.geometry import probe_fractions
from hardstep.solvers import Plan, Potentials, Solver, row_sums


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one step moves, and how far and how often it looks first. All are lengths."""

    step_radius: float
    probe_radius: float
    num_probes: int


class Proposal(NamedTuple):
    """Where each particle may go, and where the loss is to be measured."""

    step: int
    temperature: float
    reach: Reach
    directions: Tensor  # (P, V, d_p), unit
    targets: Tensor  # (P, V, d_p), displacements
    probes: Tensor  # (P, V, K, d_p), displacements
    rows: Tensor  # (A,) particles whose losses are needed; the rest are remembered
    remembered: Tensor  # (P, V, K) losses of the rows not in `rows`, NaN elsewhere

    @property
    def evaluations(self) -> int:
        """How many losses are needed."""
        return len(self.rows) * self.probes.shape[1:3].numel()


class Move(NamedTuple):
    """What `advance` decided."""

    displacement: Tensor  # (P, d_p), barycentre minus particle
    plan: Plan
    costs: Tensor  # (P, V)
    transport_cost: float  # Σ C·T: the plan's mean loss


def propose(
    step: int,
    directions: Tensor,
    reach: Reach,
    temperature: float,
    probe_jitter: float,
    step_jitter: Tensor,
) -> Proposal:
    """Place targets and probes along each particle's directions (P, V, d_p).

    Args:
        step: The step the proposal is for.
        directions: Unit directions.
        reach: Lengths and the number of probes.
        temperature: For the solve.
        probe_jitter: η of this step, shared by all probes.
        step_jitter: η_i of each particle, (P,).
    """
    lengths = reach.probe_radius * (1 + probe_jitter) * probe_fractions(reach.num_probes)
    probes = lengths.to(directions)[:, None] * directions[:, :, None]
    targets = reach.step_radius * (1 + step_jitter.to(directions))[:, None, None] * directions
    rows = torch.arange(len(directions))
    remembered = torch.full(probes.shape[:3], torch.nan, dtype=torch.float64)
    return Proposal(step, temperature, reach, directions, targets, probes, rows, remembered)


def advance(
    proposal: Proposal, losses: Tensor, solver: Solver, warm: Potentials | None = None
) -> Move:
    """Move every particle to the barycentre of its targets under the plan.

    Args:
        proposal: From `propose`.
        losses: One per probe, (P, V, K), all finite.
        solver: Turns costs into a plan.
        warm: Potentials of the previous solve.
    """
    costs = losses.double().mean(dim=2) if losses.shape[2] > 1 else losses.double().squeeze(2)
    plan = solver.solve(costs, proposal.temperature, warm)
    # Row sums, not 1/P: an unconverged solver must still give a convex combination.
    share = plan.weights / row_sums(plan.weights)
    # Targets sum to zero, so only the excess over the least share moves a particle: one whose
    # shares are equal stays where it is to the last bit.
    excess = (share - share.amin(dim=1, keepdim=True)).to(proposal.targets)
    displacement = torch.einsum("pv,pvd->pd", excess, proposal.targets)
    return Move(displacement, plan, costs, float((share * costs).sum() / len(costs)))
