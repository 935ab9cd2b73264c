"""Which hypotheses of the convergence theorem a run meets, read off its own objects.

The theorem (paper, Assumption "Standing hypotheses") asks for eight conditions:

    i     centered frame of unit vertices, d_p ≥ 2     v     flat ε, Σ r_s = ∞, Σ r_s² < ∞
    ii    independent uniform rotations                vi    iterates stay in a compact set
    iii   orthonormal projection                       vii   finite coupling constants
    iv    smooth symmetric jitter on both radii        viii  softmax close to linear

i–v are settings and decided here; vi and half of vii are assumptions about the loss; viii is
measured during the run.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from hardstep.geometry import Haar
from hardstep.optim.report import Statistics
from hardstep.optim.settings import Settings
from hardstep.schedules import Constant, Cosine, Geometric, Linear, PowerDecay, Schedule
from hardstep.solvers import RowSoftmax
from hardstep.subspaces import BoundSubspace

Status = Literal["yes", "no", "assumed", "measured", "unknown"]
_KNOWN = (Constant, Cosine, Geometric, Linear, PowerDecay)  # whose sums are known
_TOLERANCE = 1e-4  # of an orthonormal projection in float32


@dataclass(frozen=True, slots=True)
class Condition:
    """One hypothesis and how this run stands to it."""

    number: str
    name: str
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """All eight, what lies outside the theorem, and the measurements; printing shows a table."""

    conditions: tuple[Condition, ...]
    outside: tuple[str, ...]  # parts of the run that the theorem does not speak about
    statistics: Statistics

    def __getitem__(self, number: str) -> Condition:
        return next(c for c in self.conditions if c.number == number)

    def __str__(self) -> str:
        lines = [f"{'':5}{'hypothesis':<30}{'met':<10}why"]
        lines += [f"{c.number:<5}{c.name:<30}{c.status:<10}{c.reason}" for c in self.conditions]
        lines += [f"outside the theorem: {what}" for what in self.outside]
        seen = self.statistics
        if seen.steps:
            lines.append(
                f"measured over {seen.steps} steps: σ̄ {seen.saturation:.3g}, max Δ/ε "
                f"{seen.spread:.3g}, q̄ {seen.square:.3g}, constant rows {seen.dead_share:.1%}, "
                f"step radius {seen.shortest_step:.3g}–{seen.longest_step:.3g}, probe radius "
                f"{seen.shortest_probe:.3g}–{seen.longest_probe:.3g}"
            )
        return "\n".join(lines)


def measure_coverage(
    settings: Settings, subspace: BoundSubspace, statistics: Statistics
) -> Coverage:
    """How a configuration, and what it has done so far, stands to the theorem."""
    jitter = _jitter(settings)
    conditions = (
        _frame(settings),
        _rotations(settings),
        _projection(subspace),
        jitter,
        _schedules(settings),
        Condition("vi", "compact iterates", "assumed", "nothing projects or clips the iterate"),
        _coupling(jitter),
        _linearization(settings, statistics),
    )
    return Coverage(conditions, tuple(_outside(settings)), statistics)


def _frame(settings: Settings) -> Condition:
    vertices, dim = settings.polytope.vertices().double(), settings.polytope.dim
    centered = float(vertices.sum(0).norm()) < 1e-6
    unit = bool(torch.allclose(vertices.norm(dim=1), torch.ones(len(vertices)).double(), atol=1e-6))
    good = centered and unit and dim >= 2
    what = f"{len(vertices)} vertices in {dim} dimensions"
    faults = [
        text
        for text, bad in (
            ("not centered", not centered),
            ("not of unit length", not unit),
            ("d_p is 1", dim < 2),
        )
        if bad
    ]
    return _decide("i", "centered unit frame", good, ", ".join([what, *faults]))


def _rotations(settings: Settings) -> Condition:
    good = isinstance(settings.rotation, Haar)
    reason = "drawn for each step" if good else f"{settings.rotation!r} looks at the last move"
    return _decide("ii", "independent uniform rotations", good, reason)


def _projection(subspace: BoundSubspace) -> Condition:
    """Πᵀ Π z = z, tried on two vectors; a projection that fails does so on almost all."""
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(2):
        z = torch.randn(subspace.dim, generator=generator, dtype=subspace.layout.dtype)
        z = z.to(subspace.layout.device)
        back = subspace.project(subspace.expand(z))
        worst = max(worst, float((back - z).norm() / z.norm()))
    good = worst < _TOLERANCE
    return _decide("iii", "orthonormal projection", good, f"Πᵀ Π − I at most {worst:.1g}")


def _jitter(settings: Settings) -> Condition:
    missing = [name for name in ("probe", "step") if getattr(settings.jitter, name) is None]
    reason = f"none on the {' and the '.join(missing)} radius" if missing else "a mollifier on both"
    return _decide("iv", "smooth jitter", not missing, reason)


def _schedules(settings: Settings) -> Condition:
    name = "flat ε, r_s in ℓ² not ℓ¹"
    flat = _is_flat(settings.temperature)
    decay = settings.step_radius.value  # a multiple of a flat ε is as summable as it is itself
    if flat is None or (callable(decay) and not isinstance(decay, _KNOWN)):
        return Condition("v", name, "unknown", "sums of a user's schedule are not known")
    faults = [] if flat else ["ε is scheduled"]
    if not isinstance(decay, PowerDecay):
        faults.append("r_s stays above a positive floor, so Σ r_s² = ∞")
    elif not 0.5 < decay.exponent <= 1:
        faults.append(f"r_s decays with exponent {decay.exponent:g}, not in (1/2, 1]")
    reason = "; ".join(faults) or f"r_s ∝ (t + 1)^−{getattr(decay, 'exponent', 0):g}"
    return _decide("v", name, not faults, reason)


def _is_flat(schedule: Schedule) -> bool | None:
    if not callable(schedule) or isinstance(schedule, Constant):
        return True
    return False if isinstance(schedule, _KNOWN) else None


def _coupling(jitter: Condition) -> Condition:
    name = "finite coupling constants"
    if jitter.status == "no":
        return Condition("vii", name, "no", "its kernel half needs the jitter of iv")
    return Condition("vii", name, "assumed", "its transverse half is a hypothesis on the loss")


def _linearization(settings: Settings, seen: Statistics) -> Condition:
    name = "softmax close to linear"
    if not isinstance(settings.solver, RowSoftmax):
        return Condition("viii", name, "no", f"{settings.solver!r} is not the softmax step")
    if not seen.steps:
        return Condition("viii", name, "assumed", "nothing measured yet; take some steps")
    reason = f"σ̄ {seen.saturation:.2g} (largest Δ/ε {seen.spread:.2f}); π̄ < 1 is assumed"
    return Condition("viii", name, "measured", reason)


def _outside(settings: Settings) -> list[str]:
    """Heuristics that change the step after the plan."""
    return [f"{rule!r} shapes the move afterwards" for rule in settings.rules]


def _decide(number: str, name: str, good: bool, reason: str) -> Condition:
    return Condition(number, name, "yes" if good else "no", reason)
