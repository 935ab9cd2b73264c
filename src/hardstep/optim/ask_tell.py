"""PolyStep for functions of a vector: ask for points, tell what they cost.

The vector is searched in the full space, in units of a radius that follows success. Each
round has two generations: the probes around the current point, then the one point that the
step leads to. If that is no worse, the search moves there and the radius grows; if it is, the
search stays (or takes the best probe), forgets its momentum, and the radius shrinks. Where
nothing within reach makes a difference, the radius doubles. Once it has vanished, the search
starts again from the best point with a wide radius, free to go uphill once, until the budget
is used.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hardstep._checks import check_real, is_number
from hardstep.errors import CheckpointError, ConfigError, ObjectiveError
from hardstep.geometry import Simplex
from hardstep.optim.polystep import PolyStep
from hardstep.optim.rules import Momentum, PlanReuse
from hardstep.optim.settings import Settings
from hardstep.optim.variables import Bounds, Vector, read_variables
from hardstep.schedules import Length
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full

EVALS_PER_DIM = 1_000  # default budget
SMALLEST, LARGEST = 1e-8, 1e6  # of the radius, in units of the scale
HOPS = 4  # restarts begin with radii 2, 4, 8, 1, 2, … times the scale


class Best(NamedTuple):
    """A point and its loss."""

    x: Vector
    loss: float


@dataclass(frozen=True, slots=True)
class SuccessRadius:
    """How the radius follows success."""

    grow: float = 1.2
    shrink: float = 0.8

    def __post_init__(self) -> None:
        if not (self.grow >= 1 > self.shrink > 0):
            raise ConfigError(
                "SuccessRadius: grow must be at least 1 and shrink between 0 and 1, got "
                f"{self.grow} and {self.shrink}"
            )


def search_settings(dim: int, particle_dim: int = 2) -> Settings:
    """Defaults for black boxes, in units of the radius: probes and targets at distance 1."""
    return Settings(
        subspace=Full(),
        polytope=Simplex(min(particle_dim, dim)),
        solver=Standardized(RowSoftmax()),
        temperature=0.5,
        step_radius=Length(1.0),
        probe_radius=Length(2.0),
        rules=(Momentum(0.8),),
    )


class AskTell:
    """A population interface.

        while not search.should_stop:
            search.tell([f(x) for x in search.ask()])
        x, loss = search.best

    Args:
        dim: Number of variables; may be left out if `x0` or `bounds` is given.
        x0: Where to start; the middle of the bounds, or zero.
        scale: Starting radius where there are no bounds, a number or one per variable; with
            bounds it is a quarter of their width.
        bounds: A (low, high) pair for all variables, or one pair per variable; points never leave
            it. Infinite ends are fine.
        max_evals: Budget, 1,000 per variable by default.
        target: `should_stop` once a loss is at most this.
        settings: Plain PolyStep with these instead of the defaults, in units of the scale:
            every generation is one step, and the radius stays unless `radius` is given too.
        radius: How the radius follows success.
        seed: Fixes every random draw.
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        x0: ArrayLike | None = None,
        scale: ArrayLike = 1.0,
        bounds: Bounds | None = None,
        max_evals: int | None = None,
        target: float | None = None,
        settings: Settings | None = None,
        radius: SuccessRadius | None = None,
        seed: int = 0,
    ) -> None:
        self._variables = read_variables(dim, x0, scale, bounds)
        self.dim = len(self._variables.start)
        self.max_evals = _budget(max_evals, self.dim)
        if target is not None and (not is_number(target) or math.isnan(target)):
            raise ConfigError(f"AskTell: target must be a number, got {target!r}")
        self.target = target
        self._follow = radius if settings or radius else SuccessRadius()
        chosen = settings or search_settings(self.dim)
        if any(isinstance(rule, PlanReuse) for rule in chosen.rules):
            raise ConfigError("AskTell: PlanReuse has no meaning between ask and tell; drop it")
        self._units = torch.zeros(self.dim, dtype=torch.float64)  # (x − center) / radius
        self.optimizer = PolyStep({"x": self._units}, chosen, seed=seed)
        self.radius = 1.0  # in units of the scale
        self.restarts = 0
        self.evaluations = 0
        self.best = Best(self._variables.start.copy(), np.inf)
        self._center = Best(self._variables.start.copy(), np.nan)
        self._probe = self.best  # best probe of this round
        self._checking = self._follow is not None
        self._new_generation(self._variables.start if self._checking else None)

    def __len__(self) -> int:
        """Points of this generation."""
        return len(self._points)

    @property
    def mean(self) -> Vector:
        """Where the search stands."""
        return self._to_x(self._units.numpy())

    @property
    def pending(self) -> NDArray[np.intp]:
        """Points of this generation that have not been told."""
        return np.flatnonzero(~self._told)

    def ask(self) -> Vector:
        """The points of this generation, (N, dim); the same until all have been told."""
        return self._points.copy()

    def tell(self, losses: ArrayLike, indices: ArrayLike | None = None) -> None:
        """Report losses of all points, or of those at `indices`, in any order.

        The search moves on when the last one is in. NaN counts as worse than everything.
        """
        values = _as_losses(losses)
        where = np.arange(len(self)) if indices is None else np.asarray(indices, dtype=np.intp)
        if values.shape != where.shape or values.ndim != 1:
            raise ObjectiveError(
                f"tell: expected {where.shape} losses, one per point, got {values.shape}"
            )
        if where.size and (where.min() < 0 or where.max() >= len(self)):
            raise ObjectiveError(f"tell: indices must lie in 0..{len(self) - 1}, got {where}")
        if len(np.unique(where)) != len(where) or self._told[where].any():
            raise ObjectiveError("tell: some points were told already; see `pending`")
        self._losses[where], self._told[where] = values, True
        self.evaluations += len(where)
        while self._told.all():  # a generation whose rows are all remembered has no points
            self._finish_generation()
        self._note_best()

    @property
    def should_stop(self) -> bool:
        """Whether the target is met, or the next generation would exceed the budget."""
        met = self.target is not None and self.best.loss <= self.target
        return met or self.evaluations + len(self.pending) > self.max_evals

    # -- generations --------------------------------------------------------------------------

    def _note_best(self) -> Best:
        """The best point of this generation so far; the best of all follows it."""
        known = np.flatnonzero(np.isfinite(self._losses))
        if not len(known):
            return Best(self._center.x, np.inf)
        winner = known[np.argmin(self._losses[known])]
        found = Best(self._points[winner].copy(), float(self._losses[winner]))
        self.best = min(self.best, found, key=lambda best: best.loss)
        return found

    def _finish_generation(self) -> None:
        found = self._note_best()
        if self._checking:
            value = float(self._losses[0])
            self._accept(Best(self._points[0], value if np.isfinite(value) else np.inf))
            self._checking = False
            self._new_generation()
            return
        losses = self._proposal.remembered.clone()
        told = torch.from_numpy(self._losses).reshape(-1, *losses.shape[1:])
        losses[self._proposal.rows] = told
        self.optimizer.advance(self._proposal, losses)
        landed = self.mean
        if self._follow is None:  # plain steps: stay within the bounds
            step = (landed - self._center.x) / (self.radius * self._variables.scale)
            self._units.copy_(torch.from_numpy(step))
            self._new_generation()
            return
        self._probe = found
        self._units.zero_()
        if np.array_equal(landed, self._center.x):  # nothing within reach makes a difference
            self.radius = min(2 * self.radius, LARGEST)
            self._new_generation()
        else:
            self._checking = True
            self._new_generation(landed)

    def _accept(self, trial: Best) -> None:
        """Move to a point that is no worse, or stay and look closer."""
        assert self._follow is not None
        if np.isnan(self._center.loss):  # the start
            self._center = trial
        elif trial.loss <= self._center.loss:
            self._center = trial
            self.radius = min(self._follow.grow * self.radius, LARGEST)
        else:
            self._center = min(self._center, self._probe, key=lambda best: best.loss)
            self.radius *= self._follow.shrink
            self.optimizer.forget()
        if self.radius < SMALLEST:
            self._restart()

    def _restart(self) -> None:
        """Hop out of a finished basin: wide again, and free to go uphill once."""
        self.restarts += 1
        self.radius = min(2.0 ** (self.restarts % HOPS), LARGEST)
        self._center = Best(self.best.x.copy(), np.inf)

    def _new_generation(self, point: Vector | None = None) -> None:
        """Ask about one point, or about the probes of the next step."""
        if point is not None:
            self._points = point[None].copy()
        else:
            self._proposal = self.optimizer.propose()
            candidates = self.optimizer.candidates(self._proposal)
            units = [candidates.stacked(span)["x"] for span in candidates.spans()]
            self._points = self._to_x(
                torch.cat(units).numpy() if units else np.empty((0, self.dim))
            )
        self._losses = np.full(len(self._points), np.nan)
        self._told = np.zeros(len(self._points), dtype=bool)

    def _to_x(self, units: Vector) -> Vector:
        return self._variables.clip(self._center.x + self.radius * self._variables.scale * units)

    # -- saving -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, half-told generations included."""
        points = {"best": self.best, "center": self._center, "probe": self._probe}
        return {
            "optimizer": self.optimizer.state_dict(),
            "variables": self._variables.as_tensor(),
            "units": self._units.clone(),
            **{name: [torch.from_numpy(p.x.copy()), p.loss] for name, p in points.items()},
            "radius": self.radius,
            "restarts": self.restarts,
            "checking": torch.from_numpy(self._points.copy()) if self._checking else None,
            "evaluations": self.evaluations,
            "losses": torch.from_numpy(self._losses.copy()),
            "told": torch.from_numpy(self._told.copy()),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Resume from a saved state; start, scale and bounds must be the same.

        Raises:
            CheckpointError: It belongs to another search, or is no state of one.
        """
        missing = sorted(self.state_dict().keys() - saved.keys())
        if missing:
            raise CheckpointError(
                f"AskTell: the state has no {missing[0]!r}; give what state_dict() returned"
            )
        if not torch.equal(saved["variables"], self._variables.as_tensor()):
            raise CheckpointError(
                "AskTell: the state was saved with another x0, scale or bounds; build the search "
                "with the same ones"
            )
        self.optimizer.load_state_dict(saved["optimizer"])
        self._units.copy_(saved["units"])
        self.best, self._center, self._probe = (
            Best(saved[name][0].numpy().copy(), float(saved[name][1]))
            for name in ("best", "center", "probe")
        )
        self.radius, self.evaluations = float(saved["radius"]), int(saved["evaluations"])
        self.restarts = int(saved["restarts"])
        self._checking = saved["checking"] is not None
        self._new_generation(saved["checking"][0].numpy() if self._checking else None)
        self._losses, self._told = saved["losses"].numpy().copy(), saved["told"].numpy().copy()


def _budget(max_evals: int | None, dim: int) -> int:
    if max_evals is None:
        return EVALS_PER_DIM * dim
    if not is_number(max_evals) or not 1 <= max_evals < math.inf:
        raise ConfigError(f"AskTell: max_evals must be at least 1, got {max_evals!r}")
    return int(max_evals)


def _as_losses(losses: ArrayLike) -> Vector:
    check_real("tell: losses must be", losses)
    try:
        values = np.asarray(losses, dtype=np.float64)
        known = np.asarray(losses).dtype.kind not in "OSU"  # None and texts would be converted
    except (TypeError, ValueError):
        known = False
    if not known:
        raise ObjectiveError(
            f"tell: losses must be numbers, got {repr(losses)[:80]}; tell NaN for a point that "
            "failed"
        )
    return values
