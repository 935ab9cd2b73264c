"""Entropic optimal transport with both marginals enforced, by dual ascent.

Problem, and what one iteration does to the potentials (appendix on the Sinkhorn solver):

min_T  <C, T> + ε Σ T (log T − 1)   with T1 = a, Tᵀ1 = b,   a = 1/P, b = 1/V

f_i = (1 − ϖ) f_i + ϖ ε (log a_i − LSE_v((g_v − C_iv)/ε))
g_v = (1 − ϖ) g_v + ϖ ε (log b_v − LSE_i((f_i − C_iv)/ε))

`Penalized` shares the ascent: there the column marginal has a penalty λ KL(Tᵀ1 ‖ b), and λ = ∞
is Sinkhorn. With S the scaled costs, κ = λ/ε and α = κ/(κ + 1), the exact updates are averages:

u_i = −log mean_v exp(w_v − S_iv)           u = f/ε − log a − log b, for the row minimum 0
w_v = −α log mean_i exp(u_i − S_iv)         w = g/ε
w_v = w_v + κ log mean_v exp(−w_v/κ)

and the plan is T_iv = exp(u_i + w_v − S_iv)/(PV). The third line leaves the plan alone: it is
the best common shift of w in the dual, and without it the shift alone would need about κ
iterations. The fixed point satisfies g = λ(log b − log q), q being the column sums of T.

A plain update never raises the spread (max − min) of the change it makes to w, which is the
number the stopping rule looks at. For λ = ∞ that change is log b − log q; both sum to one, so
it has either sign and its spread bounds every relative column violation |log(q_v/b_v)|.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from hardstep._checks import check_count, check_positive
from hardstep.errors import ConfigError
from hardstep.solvers.base import Plan, Potentials, ScaledCosts, Solver, scale
from hardstep.solvers.softmax import row_softmax

_RELAXATION_RANGE = (0.5, 1.95)


@dataclass(frozen=True, slots=True)
class Sinkhorn(Solver):
    """Every vertex receives the same mass; for many particles that should not all agree.

    Stops once a row update leaves log(q_v/b_v), q the column sums, with a spread (max − min) of
    at most `tolerance` (or what the dtype resolves, see `DualAscent`), so that
    |log(q_v/b_v)| <= tolerance for every vertex; `max_iterations` column updates without that
    give `Plan.converged = False`. The last update is an exact one of the rows. A warm start uses
    the column potential of the previous plan.

    Small temperatures converge slowly. `relaxation` is ϖ; an entry whose move is too large to
    overshoot safely takes the plain update, so no value diverges. `anderson` > 0 mixes that many
    past changes of g instead, falling back to the plain update where this does not help. The
    two exclude each other.
    """

    relaxation: float = 1.0
    max_iterations: int = 500
    tolerance: float = 1e-6
    anderson: int = 0

    def __post_init__(self) -> None:
        low, high = _RELAXATION_RANGE
        if not low <= self.relaxation <= high:
            raise ConfigError(
                f"Sinkhorn: relaxation must lie in [{low}, {high}], got {self.relaxation}"
            )
        check_count("Sinkhorn: anderson (past changes to mix, 0 is off)", self.anderson, least=0)
        if self.anderson and self.relaxation != 1.0:
            raise ConfigError(
                f"Sinkhorn: anderson = {self.anderson} needs relaxation = 1.0, got "
                f"{self.relaxation}; set one of the two"
            )
        self._ascent()

    def _ascent(self) -> "DualAscent":
        return DualAscent("Sinkhorn", math.inf, self.max_iterations, self.tolerance)

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan and its potentials, T = exp((f + g − C)/ε).

        Raises:
            ConfigError: costs, temperature or warm potential out of range.
        """
        step: Step = Anderson(self.anderson) if self.anderson else Relaxed(self.relaxation)
        return self._ascent().solve(costs, temperature, warm, step)


@dataclass(frozen=True, slots=True)
class DualAscent:
    """Alternating updates for one solver: its name for errors, its λ, and when to stop.

    They end at `tolerance`, or after `max_iterations` column updates. A tolerance the dtype
    cannot resolve is replaced by 16 rounding units of the potentials (1e-3 at most), so that
    float32 problems do not run to the limit.
    """

    owner: str
    column_penalty: float
    max_iterations: int
    tolerance: float

    def __post_init__(self) -> None:
        check_count(f"{self.owner}: max_iterations", self.max_iterations)
        check_positive(f"{self.owner}: tolerance", self.tolerance)

    def solve(
        self, costs: Tensor, temperature: float, warm: Potentials | None, step: "Step"
    ) -> Plan:
        """The plan, ending on an exact row update, and its potentials for the given costs.

        Only the column potential of `warm` is used: the first row update replaces the other.
        """
        scaled = scale(self.owner, costs, temperature)
        start = None if warm is None else self._scale_warm(scaled, warm)
        ratio = self.column_penalty / scaled.temperature
        reached = self._solve_column(scaled.excess, ratio, start, step)
        log_weights = reached.column - scaled.excess
        row = -math.log(len(costs)) - log_weights.logsumexp(dim=1)  # f/ε, for row minimum 0
        potentials = Potentials(
            row * scaled.temperature + scaled.minimum[:, 0], reached.column * scaled.temperature
        )
        return Plan(row_softmax(log_weights), potentials, reached.iterations, reached.converged)

    def _scale_warm(self, scaled: ScaledCosts, warm: Potentials) -> Tensor:
        """The warm g in units of the temperature, capped like the costs."""
        expected = scaled.excess.shape[1:]
        if warm.column.shape != expected or not bool(warm.column.isfinite().all()):
            raise ConfigError(
                f"{self.owner}: the warm column potential must be finite, of shape "
                f"{tuple(expected)}, got {warm.column.tolist()[:8]} of shape "
                f"{tuple(warm.column.shape)}; pass warm=None to start afresh"
            )
        cap = torch.finfo(scaled.excess.dtype).max / 64
        return (warm.column.to(scaled.excess) / scaled.temperature).clamp(-cap, cap)

    def _solve_column(
        self, excess: Tensor, ratio: float, start: Tensor | None, step: "Step"
    ) -> "_Reached":
        """The column potential; zero where the penalty is too small to be felt in the dtype."""
        zero = excess.new_zeros(excess.shape[1])
        tiny = torch.finfo(zero.dtype).tiny
        if ratio <= tiny:
            return _Reached(zero, 0, converged=True)
        updates = _Updates(excess.T.contiguous(), ratio if ratio < 1 / tiny else math.inf)
        column = zero if start is None else updates.shift(start)
        reached = self._ascend(updates, column, step)
        return reached._replace(column=updates.shift(reached.column))

    def _ascend(self, updates: "_Updates", column: Tensor, step: "Step") -> "_Reached":
        """Iterate from w = `column`; without convergence, return the best w seen."""
        row = updates.update_row(column)
        exact = row
        best, least = column, math.inf
        iterations = 0
        while True:
            target = updates.update_column(row)
            # Exact for row == exact; else an upper bound on what an exact row update would leave.
            violation = _spread(target - column) + _spread(exact - row)
            if self.is_reached(violation, column):
                return _Reached(column, iterations, converged=True)
            if violation < least:
                best, least = column, violation
            if iterations == self.max_iterations:
                return _Reached(best, iterations, converged=False)
            column = step.move_column(column, target, violation)
            exact = updates.update_row(column)
            row = step.move_row(row, exact)
            iterations += 1

    def is_reached(self, violation: float, column: Tensor) -> bool:
        """Whether a violation at this column potential is small enough."""
        rounding = 16 * torch.finfo(column.dtype).eps * (1 + float(column.abs().max()))
        return violation <= max(self.tolerance, min(rounding, 1e-3))


class _Reached(NamedTuple):
    column: Tensor  # w, (V,)
    iterations: int
    converged: bool


@dataclass(frozen=True, slots=True)
class _Updates:
    """The two half updates for fixed costs."""

    excess: Tensor  # Sᵀ, (V, P): particles contiguous, since they are many
    ratio: float  # κ > 0, possibly infinite

    def update_row(self, column: Tensor) -> Tensor:
        """The u that gives every row its mass, (P,)."""
        return -_log_mean_exp(column[:, None] - self.excess, dim=0)

    def update_column(self, row: Tensor) -> Tensor:
        """The best w for this u, (V,)."""
        fitted = -_log_mean_exp(row - self.excess, dim=1)
        if math.isinf(self.ratio):
            return fitted  # shifting w alone would undo the u of a relaxed step
        return self.shift(fitted * (self.ratio / (self.ratio + 1)))

    def shift(self, column: Tensor) -> Tensor:
        """The potential plus its best constant; mean zero for λ = ∞."""
        above = column - column.min()
        if math.isinf(self.ratio):
            return above - above.mean()
        # expm1 and log1p keep the constant exact when κ is large and all exponents tiny.
        return above + self.ratio * torch.expm1(-above / self.ratio).mean().log1p()


def _log_mean_exp(values: Tensor, dim: int) -> Tensor:
    """Log-mean-exp of finite values, which are overwritten.

    A mean, not a sum: over many particles log P would cost digits.
    """
    top = values.amax(dim=dim, keepdim=True)
    return values.sub_(top).exp_().mean(dim=dim).log_().add_(top.squeeze(dim))


def _spread(values: Tensor) -> float:
    lowest, highest = values.aminmax()
    return float(highest - lowest)


class Step(Protocol):
    """Moves the potentials, given where the exact updates would put them (`target`).

    Both ways here are safe: neither makes the ascent fail where plain updates would succeed.
    """

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """The next row potential, (P,)."""

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """The next column potential, (V,); `violation` belongs to `column`."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """(1 − ϖ) current + ϖ target, entry by entry; ϖ = 1 is the plain update.

    Raising a potential past its target by too much lowers the dual, and the iteration could
    diverge. With move δ = target − current the dual changes, per unit of mass, by

        ϖδ + exp(−δ) − exp((ϖ − 1)δ) >= 0   for every δ <= 2 − ϖ,

    so an entry with a larger move takes the plain update instead and the dual never falls.
    """

    relaxation: float = 1.0

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """Both halves relax alike."""
        move = target - row
        return target + (self.relaxation - 1) * move * (move <= 2 - self.relaxation)

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """Both halves relax alike."""
        del violation
        return self.move_row(column, target)


class Anderson:
    """Anderson mixing of the column potential over the last `depth` changes.

    With residuals r = target − w and their differences ΔR, ΔW over the memory,

        w_next = target − (ΔW + ΔR) γ,   γ = argmin ‖r − ΔR γ‖² + regularization.

    A mixed point that does not lower the violation is dropped for the plain update it
    replaced, and the memory is cleared. Holds the state of one solve; make a new one for each.
    """

    def __init__(self, depth: int) -> None:
        self._points: deque[Tensor] = deque(maxlen=depth + 1)
        self._targets: deque[Tensor] = deque(maxlen=depth + 1)
        self._violation = 0.0  # at the newest point in memory
        self._is_mixed = False  # whether the point to come was mixed

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """Rows take the exact update."""
        del row
        return target

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """The mixed point, or the plain update kept from before if `column` is no progress."""
        if self._is_mixed and not violation < self._violation:  # also where it is NaN
            plain = self._targets[-1]
            self._points.clear()
            self._targets.clear()
            self._is_mixed = False
            return plain
        self._points.append(column)
        self._targets.append(target)
        self._violation = violation
        self._is_mixed = len(self._points) > 1
        return self._mix() if self._is_mixed else target

    def _mix(self) -> Tensor:
        points, targets = torch.stack(tuple(self._points)), torch.stack(tuple(self._targets))
        residuals = targets - points
        changes = residuals.diff(dim=0)  # (memory, V)
        limits = torch.finfo(changes.dtype)
        size = changes.abs().max().clamp(min=limits.tiny)  # γ does not depend on units
        basis = changes / size
        gram = basis @ basis.T
        gram.diagonal().add_(limits.eps * gram.trace() + limits.tiny)
        gamma = torch.linalg.solve_ex(gram, basis @ (residuals[-1] / size)).result
        mixed: Tensor = targets[-1] - gamma @ targets.diff(dim=0)
        return mixed
