"""Dual ascent for transport with a penalised column marginal, in units of the temperature.

With S the scaled costs, masses a = 1/P and b = 1/V, κ = λ/ε and α = κ/(κ + 1), the alternating
updates f = ε(log a − LSE_v((g − C)/ε)) and g = αε(log b − LSE_i((f − C)/ε)) become averages:

    u_i = −log mean_v exp(w_v − S_iv)           u = f/ε − log a − log b, for the row minimum 0
    w_v = −α log mean_i exp(u_i − S_iv)         w = g/ε
    w_v = w_v + κ log mean_v exp(−w_v/κ)

and the plan is T_iv = exp(u_i + w_v − S_iv)/(PV). α = 1 (λ = ∞) is Sinkhorn. The third line
leaves the plan alone: it is the best common shift of w in the dual, and without it the shift
alone would need about κ iterations. The fixed point satisfies g = λ(log b − log q), q being
the column sums of T.

A plain update never raises the spread (max − min) of the change it makes to w, which is the
number the stopping rule looks at. For λ = ∞ that change is log b − log q; both sum to one, so
it has either sign and its spread bounds every relative column violation |log(q_v/b_v)|.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.solvers.acceleration import Step
from hardstep.solvers.base import Plan, Potentials
from hardstep.solvers.costs import ScaledCosts, scale
from hardstep.solvers.softmax import row_softmax


@dataclass(frozen=True, slots=True)
class Stopping:
    """When the ascent ends: at `tolerance`, or after `max_iterations` column updates.

    A tolerance the dtype cannot resolve is replaced by 16 rounding units of the potentials
    (1e-3 at most), so that float32 problems do not run to the limit.
    """

    max_iterations: int
    tolerance: float

    def check(self, owner: str) -> None:
        """Refuse limits out of range, in the name of the solver that holds them."""
        if self.max_iterations < 1:
            raise ConfigError(
                f"{owner}: max_iterations must be at least 1, got {self.max_iterations}"
            )
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise ConfigError(f"{owner}: tolerance must be finite and > 0, got {self.tolerance}")

    def reached(self, violation: float, column: Tensor) -> bool:
        """Whether a violation at this column potential is small enough."""
        rounding = 16 * torch.finfo(column.dtype).eps * (1 + float(column.abs().max()))
        return violation <= max(self.tolerance, min(rounding, 1e-3))


def _log_mean_exp(values: Tensor, dim: int) -> Tensor:
    """Log-mean-exp of finite values, which are overwritten.

    A mean, not a sum: over many particles log P would cost digits.
    """
    top = values.amax(dim=dim, keepdim=True)
    return values.sub_(top).exp_().mean(dim=dim).log_().add_(top.squeeze(dim))


@dataclass(frozen=True, slots=True)
class _Problem:
    """The two half updates for fixed costs."""

    excess: Tensor  # Sᵀ, (V, P): particles contiguous, since they are many
    ratio: float  # κ > 0, possibly infinite

    def row_update(self, column: Tensor) -> Tensor:
        """The u that gives every row its mass, (P,)."""
        return -_log_mean_exp(column[:, None] - self.excess, dim=0)

    def column_update(self, row: Tensor) -> Tensor:
        """The best w for this u, (V,)."""
        fitted = -_log_mean_exp(row - self.excess, dim=1)
        if math.isinf(self.ratio):
            return fitted  # shifting w alone would undo the u of a relaxed step
        return self.shifted(fitted * (self.ratio / (self.ratio + 1)))

    def shifted(self, column: Tensor) -> Tensor:
        """The potential plus its best constant; mean zero for λ = ∞."""
        above = column - column.min()
        if math.isinf(self.ratio):
            return above - above.mean()
        # expm1 and log1p keep the constant exact when κ is large and all exponents tiny.
        return above + self.ratio * torch.expm1(-above / self.ratio).mean().log1p()


class _Ascent(NamedTuple):
    column: Tensor  # w, (V,)
    iterations: int
    converged: bool


def _spread(values: Tensor) -> float:
    lowest, highest = values.aminmax()
    return float(highest - lowest)


def _ascend(problem: _Problem, column: Tensor, stopping: Stopping, step: Step) -> _Ascent:
    """Iterate from w = `column`; without convergence, return the best w seen."""
    row = problem.row_update(column)
    exact = row
    best, least = column, math.inf
    iterations = 0
    while True:
        target = problem.column_update(row)
        # Exact for row == exact; else an upper bound on what an exact row update would leave.
        violation = _spread(target - column) + _spread(exact - row)
        if stopping.reached(violation, column):
            return _Ascent(column, iterations, converged=True)
        if violation < least:
            best, least = column, violation
        if iterations == stopping.max_iterations:
            return _Ascent(best, iterations, converged=False)
        column = step.move_column(column, target, violation)
        exact = problem.row_update(column)
        row = step.move_row(row, exact)
        iterations += 1


def _solve_column(
    excess: Tensor, ratio: float, start: Tensor | None, stopping: Stopping, step: Step
) -> _Ascent:
    """The column potential; zero where the penalty is too small to be felt in the dtype."""
    zero = excess.new_zeros(excess.shape[1])
    tiny = torch.finfo(zero.dtype).tiny
    if ratio <= tiny:
        return _Ascent(zero, 0, converged=True)
    problem = _Problem(excess.T.contiguous(), ratio if ratio < 1 / tiny else math.inf)
    column = zero if start is None else problem.shifted(start)
    ascent = _ascend(problem, column, stopping, step)
    return ascent._replace(column=problem.shifted(ascent.column))


def _warm_column(owner: str, scaled: ScaledCosts, warm: Potentials) -> Tensor:
    """The warm g in units of the temperature, capped like the costs."""
    expected = scaled.excess.shape[1:]
    if warm.column.shape != expected or not bool(warm.column.isfinite().all()):
        raise ConfigError(
            f"{owner}: the warm column potential must be finite, of shape {tuple(expected)}, got "
            f"{warm.column.tolist()[:8]} of shape {tuple(warm.column.shape)}; "
            "pass warm=None to start afresh"
        )
    cap = torch.finfo(scaled.excess.dtype).max / 64
    return (warm.column.to(scaled.excess) / scaled.temperature).clamp(-cap, cap)


@dataclass(frozen=True, slots=True)
class Program:
    """The penalised problem of one solver: its name for errors, its λ, and when to stop."""

    owner: str
    column_penalty: float
    stopping: Stopping

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None, step: Step) -> Plan:
        """The plan, ending on an exact row update, and its potentials for the given costs.

        Only the column potential of `warm` is used: the first row update replaces the other.
        """
        scaled = scale(self.owner, costs, temperature)
        start = None if warm is None else _warm_column(self.owner, scaled, warm)
        ratio = self.column_penalty / scaled.temperature
        ascent = _solve_column(scaled.excess, ratio, start, self.stopping, step)
        log_weights = ascent.column - scaled.excess
        row = -math.log(len(costs)) - log_weights.logsumexp(dim=1)  # f/ε, for row minimum 0
        potentials = Potentials(
            row * scaled.temperature + scaled.minimum[:, 0], ascent.column * scaled.temperature
        )
        return Plan(row_softmax(log_weights), potentials, ascent.iterations, ascent.converged)
