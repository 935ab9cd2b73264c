"""Every choice a PolyStep run is made of, checked when it is written down."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, Never

import torch

from hardstep._checks import check_count, check_method, check_positive, is_number, show, suggest
from hardstep.errors import ConfigError
from hardstep.geometry import Biased, Haar, Jitter, Polytope, Rotation, Simplex
from hardstep.optim.rules import Reuse, Rule
from hardstep.optim.step import Reach
from hardstep.schedules import Length, Radius, Schedule, TimesTemperature, length_at, temperature_at
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
    rules: Sequence[Rule] = ()
    nonfinite: NonFinite = "worst"

    def __post_init__(self) -> None:
        check_method("subspace", self.subspace, "bind", "RowWise(rank=8)")
        check_method("polytope", self.polytope, "vertices", "Simplex(8)")
        check_method("rotation", self.rotation, "draw", "Haar()")
        check_method("solver", self.solver, "solve", "RowSoftmax()")
        _check_radius("step_radius", self.step_radius)
        _check_radius("probe_radius", self.probe_radius)
        _check_positive("temperature", self.temperature)
        check_count("num_probes", self.num_probes)
        if not isinstance(self.jitter, Jitter):
            raise ConfigError(
                f"jitter must be an object such as Jitter(probe=Mollifier(0.05)), got "
                f"{show(self.jitter)}"
            )
        if self.nonfinite not in ("worst", "raise"):
            raise ConfigError(f"nonfinite must be 'worst' or 'raise', got {show(self.nonfinite)}")
        self._check_rules()
        if isinstance(self.subspace, Sketch):
            self._check_sketch()

    def _check_sketch(self) -> None:
        if _is_balanced(self.solver):
            raise ConfigError(
                "Sinkhorn gives every direction its share of the particles, and a Sketch has one "
                f"particle, which would stand still, got {self.solver!r}; use RowSoftmax()"
            )
        move = torch.zeros(1, self.polytope.dim)
        forgetful = [rule for rule in self.rules if not rule.of_weights and rule.init(move)]
        if isinstance(self.rotation, Biased) or forgetful:
            raise ConfigError(
                f"{(*forgetful, self.rotation)[0]!r} remembers coordinates, and a Sketch has new "
                "ones at every step, so it would forget; leave it out, or use WeightMomentum"
            )

    def _check_rules(self) -> None:
        if not isinstance(self.rules, tuple | list):
            raise ConfigError(
                f"rules must be a tuple such as (Momentum(0.9),), got {show(self.rules)}"
            )
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise ConfigError(f"rules must hold rules such as Momentum(0.9), got {show(rule)}")
        kinds = [type(rule).__name__ for rule in self.rules]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"rules: each kind may appear once, got {', '.join(kinds)}")
        jittered = self.jitter.probe is not None or self.jitter.step is not None
        reuses = [type(rule).__name__ for rule in self.rules if isinstance(rule, Reuse)]
        if jittered and reuses:
            raise ConfigError(
                f"{reuses[0]} cannot be combined with jitter, whose noise it would read as a "
                "change of the loss; drop one of them"
            )

    def reach_at(self, step: int) -> tuple[float, Reach]:
        """The temperature and the lengths of a step."""
        temperature = temperature_at(self.temperature, step)
        step_radius = length_at("step_radius", self.step_radius, step, temperature)
        probe_radius = length_at("probe_radius", self.probe_radius, step, temperature)
        return temperature, Reach(step_radius, probe_radius, self.num_probes)

    def changed(
        self,
        *,
        subspace: Subspace | None = None,
        polytope: Polytope | None = None,
        rotation: Rotation | None = None,
        solver: Solver | None = None,
        temperature: Schedule | None = None,
        step_radius: Radius | None = None,
        probe_radius: Radius | None = None,
        num_probes: int | None = None,
        jitter: Jitter | None = None,
        rules: Sequence[Rule] | None = None,
        nonfinite: NonFinite | None = None,
        **unknown: Never,
    ) -> "Settings":
        """These settings with the given fields replaced; one that is None stays as it is."""
        given = locals()
        names = [item.name for item in fields(self)]
        if unknown:
            name = next(iter(unknown))
            raise ConfigError(f"unknown setting {name!r}; {suggest(name, names)}")
        changes = {name: given[name] for name in names if given[name] is not None}
        return replace(self, **changes) if changes else self


def _is_balanced(solver: object) -> bool:
    """Whether columns have fixed masses, in a solver or in the one it wraps."""
    return isinstance(solver, Sinkhorn) or (hasattr(solver, "inner") and _is_balanced(solver.inner))


def _check_radius(name: str, radius: object) -> None:
    if isinstance(radius, Length | TimesTemperature):
        _check_positive(name, radius.value)
        return
    if not callable(radius) and not (is_number(radius) and 0 < radius < math.inf):
        raise ConfigError(
            f"{name} must be > 0 and have a unit, such as Length(0.1), got {show(radius)}"
        )
    raise ConfigError(
        f"{name} needs a unit: write Length({show(radius)}) for a length or "
        f"TimesTemperature({show(radius)}) for a multiple of the temperature"
    )


def _check_positive(name: str, value: object) -> None:
    """A schedule is checked when it is used."""
    if callable(value):
        return
    if not is_number(value):
        raise ConfigError(f"{name} must be a number or a schedule, got {show(value)}")
    check_positive(name, value)


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


def list_differences(saved: str, now: str, name: str = "settings") -> list[str]:
    """`field: saved → now` for the innermost fields that differ; texts as `describe` makes them."""
    if saved == now:
        return []
    left, right = _fields(saved), _fields(now)
    if left is None or right is None or left[0] != right[0]:
        return [f"{name}: {saved} → {now}"]
    inside = "" if name == "settings" else name
    found = []
    for key in left[1] | right[1]:  # in order
        path = f"{inside}{'' if key.startswith('[') or not inside else '.'}{key}"
        was, is_now = (part[1].get(key, "absent") for part in (left, right))
        found += list_differences(was, is_now, path)
    return found


def _fields(text: str) -> tuple[str, dict[str, str]] | None:
    """The kind and the parts of `Kind(a=…, b=…)` or `[…, …]`, if the text is one of these."""
    match = re.fullmatch(r"([\w.]*)([(\[])(.*)([)\]])", text, re.DOTALL)
    if match is None:
        return None
    kind, bracket, inner, _ = match.groups()
    parts = _split(inner)
    if bracket == "[":
        return f"list of {len(parts)}", {f"[{i}]": part for i, part in enumerate(parts)}
    pairs = [re.fullmatch(r"(\w+)=(.*)", part, re.DOTALL) for part in parts]
    if not all(pairs):
        return None
    return kind, {pair[1]: pair[2] for pair in pairs if pair}


def _split(text: str) -> list[str]:
    """Cut at the commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
