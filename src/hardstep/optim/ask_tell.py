"""PolyStep for functions of a vector: ask for points, tell what they cost.

The vector is searched in the full space, in units of `scale` (a quarter of the bounds' width
where there are bounds). Costs are standardized and both radii shrink geometrically over the
budget, so the scale of the function does not matter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hardstep.errors import CheckpointError, ConfigError, ObjectiveError
from hardstep.geometry import Simplex
from hardstep.optim.optimizer import PolyStep
from hardstep.optim.rules import Momentum, PlanReuse
from hardstep.optim.settings import Settings
from hardstep.schedules import Geometric, Length
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full

Vector = NDArray[np.float64]
Bounds = Sequence[tuple[float, float]]

EVALS_PER_DIM = 1_000  # default budget


class Best(NamedTuple):
    """The best point told so far."""

    x: Vector
    loss: float


def search_settings(dim: int, max_evals: int, particle_dim: int = 2) -> Settings:
    """Defaults for black boxes, in units where the search starts with radius 1."""
    particle_dim = min(particle_dim, dim)
    per_step = -(-dim // particle_dim) * (particle_dim + 1)
    steps = max(1, max_evals // per_step)
    return Settings(
        subspace=Full(),
        polytope=Simplex(particle_dim),
        solver=Standardized(RowSoftmax()),
        temperature=1.0,
        step_radius=Length(Geometric(0.5, 0.5e-5, steps)),
        probe_radius=Length(Geometric(2.0, 2e-5, steps)),
        rules=(Momentum(0.8),),
    )


class AskTell:
    """A population interface: `es.tell(f(es.ask()))`.

    Args:
        dim: Number of variables; may be left out if `x0` or `bounds` is given.
        x0: Where to start; the middle of the bounds, or zero.
        scale: Starting radius where there are no bounds, a number or one per variable.
        bounds: A (low, high) pair per variable; points never leave it. Infinite ends are fine.
        max_evals: Budget that the radii shrink over; 1,000 per variable by default.
        target: `should_stop` once a loss is at most this.
        settings: Instead of the defaults; lengths are in units of the scale.
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
        seed: int = 0,
    ) -> None:
        self.dim = _dimension(dim, x0, bounds)
        self._low, self._high = _box(bounds, self.dim)
        self._scale = _scales(scale, self._low, self._high)
        self.max_evals = EVALS_PER_DIM * self.dim if max_evals is None else int(max_evals)
        if self.max_evals < 1:
            raise ConfigError(f"AskTell: max_evals must be at least 1, got {max_evals}")
        self.target = target
        self._origin = _start(x0, self._low, self._high)
        self._units = torch.zeros(self.dim, dtype=torch.float64)  # (x − origin) / scale
        chosen = settings or search_settings(self.dim, self.max_evals)
        if any(isinstance(rule, PlanReuse) for rule in chosen.rules):
            raise ConfigError("AskTell: PlanReuse has no meaning between ask and tell; drop it")
        self.optimizer = PolyStep({"x": self._units}, chosen, seed=seed)
        self.best = Best(self._origin.copy(), np.inf)
        self.evaluations = 0
        self._new_generation()

    def __len__(self) -> int:
        """Points per generation."""
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
        values = np.asarray(losses, dtype=np.float64)
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
        self._note_best(where)
        while self._told.all():  # a generation whose rows are all remembered has no points
            self._finish_generation()

    def should_stop(self) -> bool:
        """Whether the target is met, or the next generation would exceed the budget."""
        met = self.target is not None and self.best.loss <= self.target
        return met or self.evaluations + len(self.pending) > self.max_evals

    def _note_best(self, where: NDArray[np.intp]) -> None:
        finite = where[np.isfinite(self._losses[where])]
        if len(finite):
            winner = finite[np.argmin(self._losses[finite])]
            if self._losses[winner] < self.best.loss:
                self.best = Best(self._points[winner].copy(), float(self._losses[winner]))

    def _finish_generation(self) -> None:
        shape = self._proposal.probes.shape[:3]
        losses = self._proposal.remembered.clone()
        told = torch.from_numpy(self._losses).reshape(-1, *shape[1:])
        losses[self._proposal.rows] = told
        self.optimizer.advance(self._proposal, losses)
        self._units.copy_(torch.from_numpy((self.mean - self._origin) / self._scale))
        self._new_generation()

    def _new_generation(self) -> None:
        self._proposal = self.optimizer.propose()
        candidates = self.optimizer.candidates(self._proposal)
        units = [candidates.stacked(span)["x"] for span in candidates.spans()]
        points = torch.cat(units).numpy() if units else np.empty((0, self.dim))
        self._points = self._to_x(points)
        self._losses = np.full(len(self._points), np.nan)
        self._told = np.zeros(len(self._points), dtype=bool)

    def _to_x(self, units: Vector) -> Vector:
        return np.clip(self._origin + self._scale * units, self._low, self._high)

    def _variables(self) -> torch.Tensor:
        """What units mean."""
        return torch.from_numpy(np.stack([self._origin, self._scale, self._low, self._high]))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, half-told generations included."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "variables": self._variables(),
            "units": self._units.clone(),
            "best": [torch.from_numpy(self.best.x.copy()), self.best.loss],
            "evaluations": self.evaluations,
            "losses": torch.from_numpy(self._losses.copy()),
            "told": torch.from_numpy(self._told.copy()),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a saved state; start, scale and bounds must be the same.

        Raises:
            CheckpointError: It belongs to another search.
        """
        if not torch.equal(saved["variables"], self._variables()):
            raise CheckpointError(
                "AskTell: the state was saved with another x0, scale or bounds; build the search "
                "with the same ones"
            )
        self.optimizer.load_state_dict(saved["optimizer"])
        self._units.copy_(saved["units"])
        self.best = Best(saved["best"][0].numpy().copy(), float(saved["best"][1]))
        self.evaluations = int(saved["evaluations"])
        self._new_generation()
        self._losses, self._told = saved["losses"].numpy().copy(), saved["told"].numpy().copy()


def _dimension(dim: int | None, x0: ArrayLike | None, bounds: Bounds | None) -> int:
    sizes = {
        name: size
        for name, size in (
            ("dim", dim),
            ("x0", None if x0 is None else np.asarray(x0).size),
            ("bounds", None if bounds is None else len(bounds)),
        )
        if size is not None
    }
    if len(set(sizes.values())) != 1 or min(sizes.values()) < 1:
        raise ConfigError(f"AskTell: need one number of variables, got {sizes or 'nothing'}")
    return int(next(iter(sizes.values())))


def _box(bounds: Bounds | None, dim: int) -> tuple[Vector, Vector]:
    if bounds is None:
        return np.full(dim, -np.inf), np.full(dim, np.inf)
    pairs = np.asarray(bounds, dtype=np.float64)
    if pairs.shape != (dim, 2):
        raise ConfigError(
            f"AskTell: bounds must be a (low, high) pair per variable, got shape {pairs.shape}"
        )
    if not (pairs[:, 0] < pairs[:, 1]).all():
        raise ConfigError(f"AskTell: every bound must have low < high, got {pairs.tolist()}")
    return pairs[:, 0], pairs[:, 1]


def _scales(scale: ArrayLike, low: Vector, high: Vector) -> Vector:
    given = np.broadcast_to(np.asarray(scale, dtype=np.float64), low.shape)
    if not ((given > 0) & np.isfinite(given)).all():
        raise ConfigError(f"AskTell: scale must be > 0 and finite, got {given.tolist()}")
    return np.where(np.isfinite(high - low), (high - low) / 4, given)


def _start(x0: ArrayLike | None, low: Vector, high: Vector) -> Vector:
    if x0 is None:
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        return np.where(np.isfinite(middle), middle, np.clip(0.0, low, high))
    start = np.asarray(x0, dtype=np.float64).reshape(-1).copy()
    if not ((start >= low) & (start <= high) & np.isfinite(start)).all():
        raise ConfigError(f"AskTell: x0 must be finite and within the bounds, got {start.tolist()}")
    return start
