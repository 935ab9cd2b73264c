"""The distance of a probe, and the two smoothings of a loss that it gives.

In the units of the paper a probe sits at ρ = r_pε·ξ_k(1 + η) along a unit direction,
k uniform on 1 … K and η of the bump density, so its mean is δ = r_pε/2 and no probe goes beyond
δ_out = r_pε·ξ_K(1 + η_max). Of two smoothings of a loss one averages it over the probes, the
other over a ball whose radius is drawn with weight ∝ ρ (the tail kernel); on a unit step at
distance s their gradients are

    probe   E_ρ[(B_d/ρ)(1 − s²/ρ²)^((d−3)/2); ρ > s]
    tail    (d/δ) E_ρ[A_d(1 − s²/ρ²)^((d−1)/2); ρ > s]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from hardstep.geometry import Mollifier, probe_fractions
from hardstep.theory.numerics import Array, Function, quadrature
from hardstep.theory.spheres import ball_cdf, equator_density, half_mean

BUMP_MASS = 0.44399381616807865  # ∫ exp(−1/(1 − t²)) over (−1, 1)
BUMP_VARIANCE = 0.15811364  # of t under that density, normalized


def bump(t: Array) -> Array:
    """The jitter's density in t = η/η_max."""
    inside = np.abs(t) < 1
    room = np.where(inside, 1 - t**2, 1.0)
    return np.where(inside, np.exp(-1 / room), 0.0) / BUMP_MASS


def bump_survival(t: float) -> float:
    """The probability that η/η_max exceeds t."""
    nodes, weights = quadrature(t, 1.0)
    return float(weights @ bump(nodes))


@dataclass(frozen=True)
class RadiusLaw:
    """The law of a probe's distance: r_pε·ξ_k(1 + η)."""

    length: float  # r_pε
    num_probes: int = 1
    eta_max: float = 0.0  # zero for no jitter

    @property
    def centers(self) -> Array:
        """r_pε·ξ_k."""
        return np.asarray(self.length * probe_fractions(self.num_probes).numpy())

    @property
    def mean(self) -> float:
        """δ."""
        return float(self.centers.mean())

    @property
    def outer(self) -> float:
        """δ_out."""
        return float(self.centers[-1]) * (1 + self.eta_max)

    def density(self, radius: Array) -> Array:
        """q_mix."""
        widths = self.eta_max * self.centers
        scaled = (radius[..., None] - self.centers) / widths
        return np.asarray((bump(scaled) / widths).mean(axis=-1))

    def log_slope(self, radius: Array) -> Array:
        """q'_mix/q_mix, for radii that some probe can have.

        Exponents are compared before they are taken, so it is exact where the density
        underflows.
        """
        widths = self.eta_max * self.centers
        scaled = (radius[..., None] - self.centers) / widths
        inside = np.abs(scaled) < 1
        room = np.where(inside, 1 - scaled**2, 1.0)
        exponent = np.where(inside, -1 / room, -np.inf)
        share = np.exp(exponent - exponent.max(axis=-1, keepdims=True)) / widths
        slopes = (share * -2 * scaled / room**2 / widths).sum(axis=-1)
        return np.asarray(slopes / share.sum(axis=-1))

    def rule(self, *breaks: float) -> tuple[Array, Array]:
        """Radii and their probabilities; the integrand may break at the given radii."""
        if not self.eta_max:
            return self.centers, np.full(self.num_probes, 1 / self.num_probes)
        pieces = [piece for center in self.centers for piece in self._pieces(center, breaks)]
        radii, weights = zip(*pieces, strict=True)
        return np.concatenate(radii), np.concatenate(weights) / self.num_probes

    def _pieces(self, center: float, breaks: Sequence[float]) -> list[tuple[Array, Array]]:
        width = self.eta_max * center
        inside = sorted(b for b in breaks if abs(b - center) < width)
        edges = [center - width, *inside, center + width]
        rules = [quadrature(a, b) for a, b in pairwise(edges)]
        return [(x, w * bump((x - center) / width) / width) for x, w in rules]

    def expect(self, function: Function, *breaks: float) -> float:
        """The mean of a function of the radius."""
        radii, weights = self.rule(*breaks)
        return float(weights @ function(radii))

    def draw(self, num: int, generator: torch.Generator) -> Array:
        """Independent radii, jittered by the shipped mollifier."""
        which = torch.randint(self.num_probes, (num,), generator=generator).numpy()
        if not self.eta_max:
            return np.asarray(self.centers[which])
        jitter = Mollifier(self.eta_max).draw(num, generator).numpy()
        return np.asarray(self.centers[which] * (1 + jitter))


def tail_cdf(law: RadiusLaw, dim: int, at: float) -> float:
    """The tail smoothing of a unit step, a signed distance `at` past it."""
    return law.expect(lambda radii: radii * ball_cdf(at / radii, dim), abs(at)) / law.mean


def probe_cdf(law: RadiusLaw, dim: int, at: float) -> float:
    """The step averaged over probes."""
    return law.expect(lambda radii: ball_cdf(at / radii, dim - 2), abs(at))


def tail_gradient(law: RadiusLaw, dim: int, offset: float) -> float:
    """The tail smoothing's gradient at distance `offset` from a unit step."""

    def half(radius: Array) -> Array:
        return np.clip(1 - (offset / radius) ** 2, 0, None) ** ((dim - 1) / 2)

    return dim / law.mean * half_mean(dim) * law.expect(half, offset)


def probe_gradient(law: RadiusLaw, dim: int, offset: float) -> float:
    """The probe law's gradient at distance `offset` from a unit step."""

    def density(radius: Array) -> Array:
        room = np.where(radius > offset, 1 - (offset / radius) ** 2, 1.0)
        return np.where(radius > offset, room ** ((dim - 3) / 2) / radius, 0.0)

    return equator_density(dim) * law.expect(density, offset)
