"""PolyStep for functions of a vector: ask for points, tell what they cost.

The vector is searched in the full space, in units of a radius that follows success. Each
round has two generations: the probes around the current point (the first time along with that
point itself), then the one point that the step leads to. If that is no worse, the search moves
there and the radius grows; if it is, the search stays (or takes the best probe), forgets its
momentum, and the radius shrinks. Where nothing within reach makes a difference, the radius
doubles. Once it has vanished, the search starts again from the best point with a wide radius,
free to go uphill once, until the budget is used.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from hardstep._checks import check_real, is_number
from hardstep.errors import CheckpointError, ConfigError, ObjectiveError
from hardstep.geometry import Simplex
from hardstep.optim.generations import Best, Generations, Late, Numbers
from hardstep.optim.polystep import PolyStep
from hardstep.optim.rules import Momentum, PlanReuse
from hardstep.optim.settings import Settings
from hardstep.optim.step import Proposal
from hardstep.optim.variables import Bounds, Vector, read_variables
from hardstep.schedules import Length
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full

EVALS_PER_DIM = 1_000  # default budget
SMALLEST, LARGEST = 1e-8, 1e6  # of the radius, in units of the scale
HOPS = 4  # restarts begin with radii 2, 4, 8, 1, 2, … times the scale


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
        late: What to do with losses of points that are not open: of an earlier generation, told
            before, or never asked about. `raise` refuses them, `ignore` drops them.
        seed: Fixes every random draw.
    """

    NAME = "AskTell"  # in messages

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
        late: Late = "raise",
        seed: int = 0,
    ) -> None:
        self._variables = read_variables(self.NAME, dim, x0, scale, bounds)
        self.dim = len(self._variables.start)
        self.max_evals = _budget(self.NAME, max_evals, self.dim)
        check_target(self.NAME, target)
        self.target = target
        if late not in ("raise", "ignore"):
            raise ConfigError(f"{self.NAME}: late must be 'raise' or 'ignore', got {late!r}")
        self.late: Late = late
        plain = settings is not None and radius is None
        self._follow = None if plain else radius or SuccessRadius()
        chosen = search_settings(self.dim) if settings is None else settings
        if not isinstance(chosen, Settings):
            raise ConfigError(f"{self.NAME}: settings must be Settings or a preset, got {chosen!r}")
        if any(isinstance(rule, PlanReuse) for rule in chosen.rules):
            raise ConfigError(
                f"{self.NAME}: PlanReuse has no meaning between ask and tell; drop it"
            )
        self._units = torch.zeros(self.dim, dtype=torch.float64)  # (x − center) / radius
        self.optimizer = PolyStep({"x": self._units}, chosen, seed=seed)
        self.radius = 1.0  # in units of the scale
        self.restarts = 0
        self.evaluations = 0
        self.best = Best(self._variables.start.copy(), np.inf)
        self._center = Best(self._variables.start.copy(), np.nan)
        self._probe = self.best  # best probe of this round
        self._generations = Generations()
        self._ask_first()

    def __len__(self) -> int:
        """Points of this generation."""
        return len(self._generations.now.points)

    @property
    def generation(self) -> int:
        """The number of this generation, from 1."""
        return self._generations.now.number

    @property
    def is_checking(self) -> bool:
        """Whether this generation is the one point that a step led to."""
        return self._proposal is None

    @property
    def mean(self) -> Vector:
        """Where the search stands."""
        return self._to_x(self._units.numpy())

    @property
    def pending(self) -> Numbers:
        """Points of this generation that have not been told."""
        return np.flatnonzero(~self._generations.now.told)

    def ask(self) -> Vector:
        """The points of this generation, (N, dim); the same until all have been told."""
        return self._generations.ask()

    def tell(self, losses: ArrayLike, points: ArrayLike | None = None) -> None:
        """Report losses of all points, or of some in any order.

        The search moves on when the last one is in. NaN counts as worse than everything.

        Args:
            losses: One per point; or a number, for one point.
            points: Which points: rows of what `ask` returned, which are recognized even when they
                come late, or their numbers in the last `ask`. All of these if left out.

        Raises:
            ObjectiveError: They do not fit together, or some points are not open and `late` is
                `raise`. Nothing has changed.
        """
        self.evaluations += self._generations.tell(_as_losses(losses), points, self.late)
        while self._generations.now.told.all():  # one whose rows are all remembered has no points
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
        found = self._generations.now.find_best()
        if found is None:
            return Best(self._center.x, np.inf)
        self.best = min(self.best, found, key=lambda best: best.loss)
        return found

    def _finish_generation(self) -> None:
        found, losses = self._note_best(), self._generations.now.losses
        if self._trial is not None:
            value, losses = float(losses[0]), losses[1:]
            self._accept(Best(self._trial, value if np.isfinite(value) else np.inf))
        if self._proposal is None:
            self._new_generation(probes=True)
        else:
            self._take_step(self._proposal, losses, found)

    def _take_step(self, proposal: Proposal, told: Vector, found: Best) -> None:
        """Move by the losses of the probes, or ask about the point that they lead to."""
        losses = proposal.remembered.clone()
        losses[proposal.rows] = torch.from_numpy(told).reshape(-1, *losses.shape[1:])
        self.optimizer.advance(proposal, losses)
        landed = self.mean
        if self._follow is None:  # plain steps: stay within the bounds
            step = (landed - self._center.x) / (self.radius * self._variables.scale)
            self._units.copy_(torch.from_numpy(step))
            self._new_generation(probes=True)
            return
        self._probe = found
        self._units.zero_()
        if np.array_equal(landed, self._center.x):  # nothing within reach makes a difference
            self.radius = min(2 * self.radius, LARGEST)
            self._new_generation(probes=True)
        else:
            self._new_generation(trial=landed)

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

    def _ask_first(self) -> None:
        """Ask about the start along with the first probes, if the budget has room for both."""
        start = None if self._follow is None else self._variables.start.copy()
        points = self._make_points(start, probes=True)
        if start is not None and len(points) > self.max_evals:
            points = self._make_points(start, probes=False)
        self._generations.begin(points)

    def _new_generation(self, trial: Vector | None = None, *, probes: bool = False) -> None:
        self._generations.begin(self._make_points(trial, probes=probes))

    def _make_points(self, trial: Vector | None, *, probes: bool) -> Vector:
        """A point to be compared with the center, the probes of the next step, or both."""
        self._trial = trial
        self._proposal = self.optimizer.propose() if probes else None
        points = [np.empty((0, self.dim)) if trial is None else trial[None]]
        if self._proposal is not None:
            candidates = self.optimizer.candidates(self._proposal)
            units = [candidates.stacked(span)["x"].numpy() for span in candidates.spans()]
            points += [self._to_x(some) for some in units]
        return np.concatenate(points)

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
            "trial": None if self._trial is None else torch.from_numpy(self._trial.copy()),
            "probes": self._proposal is not None,
            "evaluations": self.evaluations,
            **self._generations.state_dict(),
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
        trial = None if saved["trial"] is None else saved["trial"].numpy().copy()
        points = self._make_points(trial, probes=bool(saved["probes"]))
        self._generations.load_state_dict(saved, points)


def check_target(name: str, target: object) -> None:
    """Refuse a target that no loss can be compared with."""
    if target is not None and (not is_number(target) or math.isnan(target)):
        raise ConfigError(f"{name}: target must be a number, got {target!r}")


def _budget(name: str, max_evals: int | None, dim: int) -> int:
    if max_evals is None:
        return EVALS_PER_DIM * dim
    if not is_number(max_evals) or not 1 <= max_evals < math.inf:
        raise ConfigError(f"{name}: max_evals must be at least 1, got {max_evals!r}")
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
