"""What one step did, and what all steps so far have shown, in numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardstep.errors import NonFiniteLossError, ObjectiveError
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
    column_violation: float = math.nan  # KL(Tᵀ1 ‖ b) of a solve's plan, see `Plan`
    nonfinite: int = 0
    evaluations: int = 0
    seconds: float = 0.0  # of `PolyStep.step`

    @classmethod
    def of_solve(
        cls, proposal: Proposal, move: Move, displacement: Tensor, nonfinite: int
    ) -> "StepReport":
        """Of a step that solved."""
        spread = (move.costs.amax(dim=1) - move.costs.amin(dim=1)) / proposal.temperature
        return cls(
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
            column_violation=move.plan.column_violation,
            nonfinite=nonfinite,
            evaluations=proposal.evaluations,
        )

    @classmethod
    def of_answer(
        cls, step: int, temperature: float, reach: Reach, loss: float, move: Tensor
    ) -> "StepReport":
        """Of a step that a rule answered: one evaluation, no rows."""
        return cls(
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


class Statistics(NamedTuple):
    """What a run has shown so far, above all of condition viii; sums are over solved steps."""

    steps: int = 0
    radius: float = 0.0  # Σ r_s
    saturated: float = 0.0  # Σ r_s · share of rows with Δ > ε
    spread: float = 0.0  # largest Δ/ε
    square: float = 0.0  # largest mean of (Δ/ε)² over rows that are not saturated
    dead: float = 0.0  # Σ share of constant rows
    shortest_step: float = float("inf")
    longest_step: float = 0.0
    shortest_probe: float = float("inf")
    longest_probe: float = 0.0
    violation: float = 0.0  # Σ KL(Tᵀ1 ‖ b) of the plans

    def after(self, report: StepReport) -> "Statistics":
        """With one more step; one that reused a plan has no rows to look at."""
        if not report.solved:
            return self
        return Statistics(
            self.steps + 1,
            self.radius + report.step_radius,
            self.saturated + report.step_radius * report.spread_share,
            max(self.spread, report.spread_max),
            max(self.square, report.spread_square),
            self.dead + report.dead_share,
            min(self.shortest_step, report.step_radius),
            max(self.longest_step, report.step_radius),
            min(self.shortest_probe, report.probe_radius),
            max(self.longest_probe, report.probe_radius),
            self.violation + report.column_violation,
        )

    @property
    def saturation(self) -> float:
        """σ̄: the share of saturated rows, weighted by the step radius."""
        return self.saturated / self.radius if self.radius else 0.0

    @property
    def dead_share(self) -> float:
        """Mean share of constant rows, which do not move."""
        return self.dead / self.steps if self.steps else 0.0

    @property
    def column_violation(self) -> float:
        """Mean over plans of how far their columns were from uniform."""
        return self.violation / self.steps if self.steps else 0.0


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


def check_batch(losses: Tensor, inputs: Any) -> None:
    """Refuse a batch without examples, if no loss is finite for it."""
    if losses.isfinite().any():
        return
    parts = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    several = parts if isinstance(parts, tuple | list) else [parts]
    for part in several:
        if isinstance(part, Tensor) and part.dim() and not part.numel():
            raise ObjectiveError(
                f"step: the batch is empty, its inputs have shape {tuple(part.shape)}"
            )
