"""What one step did, in numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.errors import NonFiniteLossError
from hardstep.optim.settings import NonFinite
from hardstep.optim.step import Move, Proposal, Reach


@dataclass(frozen=True, slots=True)
class StepReport:
    """Diagnostics of one step.

    Spread is Δ_i/ε, a row's range of costs over the temperature: rows above 1 are saturated,
    rows at 0 are dead (every probe of the particle returned the same loss).
    """

    step: int
    loss: float  # transport cost of a solve (NaN if no loss was finite), or at the parameters
    solved: bool
    temperature: float
    step_radius: float
    probe_radius: float
    spread_max: float
    spread_share: float  # share of rows with Δ/ε > 1
    spread_square: float  # mean of (Δ/ε)² over all rows, those with Δ/ε > 1 taken as 0
    dead_share: float  # share of constant rows
    displacement: float  # Euclidean length of the whole move
    nonfinite: int = 0
    evaluations: int = 0
    seconds: float = 0.0  # of `PolyStep.step`


def finite_losses(losses: Tensor, policy: NonFinite) -> tuple[Tensor, int]:
    """Losses with the non-finite ones ranked last, and how many there were.

    Raises:
        NonFiniteLossError: There are some and the policy is `raise`.
    """
    bad = ~losses.isfinite()
    count = int(bad.sum())
    if count == 0:
        return losses, 0
    if policy == "raise":
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise NonFiniteLossError(count, first)
    good = losses[~bad]
    worst = float(good.max()) if good.numel() else 0.0
    return torch.where(bad, worst, losses), count


def solve_report(
    proposal: Proposal, move: Move, displacement: Tensor, nonfinite: int
) -> StepReport:
    """The report of a step that solved."""
    spread = (move.costs.amax(dim=1) - move.costs.amin(dim=1)) / proposal.temperature
    return StepReport(
        step=proposal.step,
        loss=move.transport_cost,
        solved=True,
        temperature=proposal.temperature,
        step_radius=proposal.reach.step_radius,
        probe_radius=proposal.reach.probe_radius,
        spread_max=float(spread.max()),
        spread_share=float((spread > 1).double().mean()),
        spread_square=float(torch.where(spread > 1, 0, spread).square().double().mean()),
        dead_share=float((spread == 0).double().mean()),
        displacement=float(displacement.norm()),
        nonfinite=nonfinite,
        evaluations=proposal.evaluations,
    )


def coast_report(
    step: int, temperature: float, reach: Reach, loss: float, move: Tensor
) -> StepReport:
    """The report of a step that reused a plan: one evaluation, no rows."""
    return StepReport(
        step=step,
        loss=loss,
        solved=False,
        temperature=temperature,
        step_radius=reach.step_radius,
        probe_radius=reach.probe_radius,
        spread_max=math.nan,
        spread_share=math.nan,
        spread_square=math.nan,
        dead_share=math.nan,
        displacement=float(move.norm()),
        evaluations=1,
    )
