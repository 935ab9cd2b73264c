"""Every choice a PolyStep run is made of, checked when it is written down."""

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Literal

from hardstep.errors import ConfigError
from hardstep.geometry import Biased, Haar, Jitter, Polytope, Rotation, Simplex
from hardstep.optim.rules import Rule
from hardstep.schedules import Length, Radius, Schedule, TimesTemperature
from hardstep.solvers import RowSoftmax, Sinkhorn, Solver
from hardstep.subspaces import RowWise, Sketch, Subspace

NonFinite = Literal["worst", "raise"]


@dataclass(frozen=True)
class Settings:
    """What `PolyStep` does; what it runs on (model, evaluator, seed) is not part of it.

    Args:
        subspace: Which coordinates are searched.
        polytope: Directions per particle; its dimension is the particle dimension.
        rotation: How each particle turns its polytope.
        solver: How costs become weights.
        temperature: ε, a number or a schedule.
        step_radius: How far a step can go.
        probe_radius: Probes sit at k/(K + 1) of it.
        num_probes: K, probes per direction.
        jitter: Random factors on the two radii.
        rules: What shapes the move afterwards, in this order.
        nonfinite: `worst` ranks NaN and infinite losses last and counts them; `raise` stops.
    """

    subspace: Subspace = field(default_factory=RowWise)
    polytope: Polytope = field(default_factory=lambda: Simplex(8))
    rotation: Rotation = field(default_factory=Haar)
    solver: Solver = field(default_factory=RowSoftmax)
    temperature: Schedule = 0.005
    step_radius: Radius = field(default_factory=lambda: Length(0.1))
    probe_radius: Radius = field(default_factory=lambda: Length(2.0))
    num_probes: int = 1
    jitter: Jitter = field(default_factory=Jitter)
    rules: tuple[Rule, ...] = ()
    nonfinite: NonFinite = "worst"

    def __post_init__(self) -> None:
        _check_kind("subspace", self.subspace, "bind", "RowWise(rank=8)")
        _check_kind("polytope", self.polytope, "vertices", "Simplex(8)")
        _check_kind("rotation", self.rotation, "draw", "Haar()")
        _check_kind("solver", self.solver, "solve", "RowSoftmax()")
        _check_radius("step_radius", self.step_radius)
        _check_radius("probe_radius", self.probe_radius)
        _check_positive("temperature", self.temperature)
        if not isinstance(self.num_probes, int) or self.num_probes < 1:
            raise ConfigError(f"num_probes must be a whole number >= 1, got {self.num_probes!r}")
        if not isinstance(self.jitter, Jitter):
            raise ConfigError(
                f"jitter must be an object such as Jitter(probe=Mollifier(0.05)), got "
                f"{self.jitter!r}"
            )
        if self.nonfinite not in ("worst", "raise"):
            raise ConfigError(f"nonfinite must be 'worst' or 'raise', got {self.nonfinite!r}")
        self._check_rules()
        if isinstance(self.subspace, Sketch):
            self._check_sketch()

    def _check_sketch(self) -> None:
        if _is_balanced(self.solver):
            raise ConfigError(
                "Sinkhorn gives every direction its share of the particles, and a Sketch has one "
                f"particle, which would stand still, got {self.solver!r}; use RowSoftmax()"
            )
        forgetful = [rule for rule in self.rules if rule.remembers]
        if isinstance(self.rotation, Biased) or forgetful:
            raise ConfigError(
                f"{(*forgetful, self.rotation)[0]!r} remembers coordinates, and a Sketch has new "
                "ones at every step, so it would do nothing; leave it out, or use WeightMomentum"
            )

    def _check_rules(self) -> None:
        if not isinstance(self.rules, tuple | list):
            raise ConfigError(f"rules must be a tuple such as (Momentum(0.9),), got {self.rules!r}")
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise ConfigError(f"rules must hold rules such as Momentum(0.9), got {rule!r}")
        kinds = [type(rule).__name__ for rule in self.rules]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"rules: each kind may appear once, got {', '.join(kinds)}")
        jittered = self.jitter.probe is not None or self.jitter.step is not None
        reuses = [type(rule).__name__ for rule in self.rules if rule.reuses]
        if jittered and reuses:
            raise ConfigError(
                f"{reuses[0]} cannot be combined with jitter, whose noise it would read as a "
                "change of the loss; drop one of them"
            )

    def changed(self, **changes: Any) -> "Settings":
        """These settings with some fields replaced; unknown names are refused."""
        known = {f.name for f in fields(self)}
        unknown = sorted(set(changes) - known)
        if unknown:
            raise ConfigError(
                f"unknown setting {unknown[0]!r}; the settings are {', '.join(sorted(known))}"
            )
        return replace(self, **changes)


def _is_balanced(solver: object) -> bool:
    """Whether columns have fixed masses, in a solver or in the one it wraps."""
    return isinstance(solver, Sinkhorn) or (hasattr(solver, "inner") and _is_balanced(solver.inner))


def _check_kind(name: str, value: object, method: str, example: str) -> None:
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise ConfigError(f"{name} must be an object such as {example}, got {value!r}")


def _check_radius(name: str, radius: object) -> None:
    if not isinstance(radius, Length | TimesTemperature):
        raise ConfigError(
            f"{name} needs a unit: write Length({radius!r}) for a length or "
            f"TimesTemperature({radius!r}) for a multiple of the temperature"
        )
    _check_positive(name, radius.value)


def _check_positive(name: str, value: object) -> None:
    """A schedule is checked when it is used."""
    if callable(value):
        return
    if not isinstance(value, Real):
        raise ConfigError(f"{name} must be a number or a schedule, got {value!r}")
    if not 0 < float(value) < math.inf:
        raise ConfigError(f"{name} must be > 0 and finite, got {value}")


def describe(value: Any) -> str:
    """A stable text for settings: equal settings, equal text, in any process."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(describe(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {describe(item)}' for key, item in value.items())}}}"
    if isinstance(value, partial):
        return f"partial({describe([value.func, value.args, value.keywords])})"
    if hasattr(value, "__qualname__"):  # a function or a class
        return f"{value.__module__}.{value.__qualname__}"
    if repr(value) == object.__repr__(value):  # would show an address, another in each process
        return f"{describe(type(value))}({describe(getattr(value, '__dict__', {}))})"
    return repr(value)
