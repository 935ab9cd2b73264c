"""The parts of a PolyStep update.

    propose    directions, reach, jitter         -> step targets and probes
    evaluate   proposal, candidates, objective   -> losses at probes
    advance    proposal, losses at probes        -> the move of every particle

The first and the last are pure. All speak of displacements from the particles' current
positions, since the tensors themselves are the only record of where those are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._checks import check_real
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import Candidates, Objective
from hardstep.geometry import Jitter, probe_fractions
from hardstep.solvers import Plan, Potentials, Solver, row_sums

_fractions = lru_cache(probe_fractions)  # the same at every step


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

    def check(self, losses: Tensor, step: int) -> None:
        """Refuse losses of another shape, and a proposal of another step."""
        expected = self.probes.shape[:3]
        if losses.shape != expected:
            raise ObjectiveError(
                f"losses must have shape {tuple(expected)} (particles, vertices, probes), "
                f"got {tuple(losses.shape)}"
            )
        if self.step != step:
            raise ConfigError(
                f"the proposal is for step {self.step}, the optimizer is at {step}; "
                "call propose() again"
            )


class Move(NamedTuple):
    """What `advance` decided."""

    displacement: Tensor  # (P, d_p), barycenter minus particle
    plan: Plan
    costs: Tensor  # (P, V)
    transport_cost: float  # Σ C·T: the plan's mean loss


def draw_jitter(jitter: Jitter, num_particles: int, seed: int, step: int) -> tuple[float, Tensor]:
    """η of the probes and η_i of every particle's step, (P,); zero where there is none."""
    probe, steps = 0.0, torch.zeros(num_particles)
    if jitter.probe:
        probe = float(jitter.probe.draw(1, seeds.generator(seed, "probe jitter", step)))
    if jitter.step:
        steps = jitter.step.draw(num_particles, seeds.generator(seed, "step jitter", step))
    return probe, steps


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
    lengths = reach.probe_radius * (1 + probe_jitter) * _fractions(reach.num_probes)
    probes = lengths.to(directions)[:, None] * directions[:, :, None]
    targets = reach.step_radius * (1 + step_jitter.to(directions))[:, None, None] * directions
    rows = torch.arange(len(directions))
    remembered = torch.full(probes.shape[:3], torch.nan, dtype=torch.float64)
    return Proposal(step, temperature, reach, directions, targets, probes, rows, remembered)


def evaluate(
    proposal: Proposal, candidates: Callable[[Proposal], Candidates], objective: Objective
) -> Tensor:
    """The losses of a proposal's probes, (P, V, K), those of remembered rows included."""
    losses = proposal.remembered.clone()
    if len(proposal.rows):
        asked = candidates(proposal)
        found = objective.losses(asked)
        shape = tuple(found.shape) if isinstance(found, Tensor) else repr(found)[:80]
        if shape != (len(asked),):
            raise ObjectiveError(f"objective must return {len(asked)} losses, got {shape}")
        check_real("objective must return", found)
        losses[proposal.rows] = found.double().cpu().reshape(-1, *losses.shape[1:])
    return losses


def advance(
    proposal: Proposal, losses: Tensor, solver: Solver, warm: Potentials | None = None
) -> Move:
    """Move every particle to the barycenter of its targets under the plan.

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
