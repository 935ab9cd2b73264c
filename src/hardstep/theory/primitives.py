"""Closed forms and small tools that several groups of checks share.

Radii, in the units of the paper: a probe sits at ρ = r_pε·ξ_k(1 + η) along a unit direction,
k uniform on 1 … K and η of the bump density, so its mean is δ = r_pε/2 and no probe goes beyond
δ_out = r_pε·ξ_K(1 + η_max). Of two smoothings of a loss one averages it over the probes, the
other over a ball whose radius is drawn with weight ∝ ρ (the tail kernel); on a unit step at
distance s their gradients are

    probe   E_ρ[(B_d/ρ)(1 − s²/ρ²)^((d−3)/2); ρ > s]
    tail    (d/δ) E_ρ[A_d(1 − s²/ρ²)^((d−1)/2); ρ > s]
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hardstep import seeds
from hardstep.geometry import Mollifier, Polytope, haar, probe_fractions
from hardstep.optim import Reach, advance, propose
from hardstep.solvers import RowSoftmax
from hardstep.theory.suite import Values

Array = NDArray[np.float64]
Function = Callable[[Array], Array]  # of numbers, entry by entry
Loss = Callable[[Array], Array]  # of points (..., d), giving (...)
T = TypeVar("T", float, Array)

BUMP_MASS = 0.44399381616807865  # ∫ exp(−1/(1 − t²)) over (−1, 1)
BUMP_VARIANCE = 0.15811364  # of t under that density, normalised

# -- numbers ------------------------------------------------------------------------------------


def within(expected: Values, tols: Values) -> Callable[[Values], bool]:
    """A predicate: every named value within its own absolute tolerance."""
    return lambda values: all(abs(values[n] - expected[n]) <= tol for n, tol in tols.items())


def farthest(values: Iterable[float], expected: float) -> float:
    """The value that differs most from what it should be."""
    return max((float(value) for value in values), key=lambda value: abs(value - expected))


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """The exponent of y ∝ x^slope, by least squares in the logarithms."""
    return float(np.polyfit(np.log(np.asarray(x)), np.log(np.asarray(y)), 1)[0])


@lru_cache(maxsize=16)
def _unit_rule(num: int) -> tuple[Array, Array]:
    """Nodes and weights on (0, 1) for functions with half powers at the ends.

    Gauss–Legendre after x = 3t² − 2t³, whose zero slopes make √x and 1/√x smooth in t.
    """
    t, weights = np.polynomial.legendre.leggauss(num)
    t = (t + 1) / 2
    return t**2 * (3 - 2 * t), weights * 3 * t * (1 - t)


def quadrature(low: float | Array, high: float | Array, num: int = 400) -> tuple[Array, Array]:
    """Nodes and weights on (low, high), along a new last axis."""
    x, weights = _unit_rule(num)
    start, width = np.asarray(low)[..., None], np.asarray(high - low)[..., None]
    return start + width * x, width * weights


def midpoints(low: float, high: float, num: int) -> Array:
    """Midpoints of equal intervals; their mean is spectrally accurate on periodic functions."""
    return low + (high - low) * (np.arange(num) + 0.5) / num


def maximise(function: Function, low: float, high: float, num: int = 2001) -> tuple[float, float]:
    """Where a function is largest on an interval, and its value: grid, then golden section."""
    grid = np.linspace(low, high, num)
    best = int(np.argmax(function(grid)))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, num - 1)])
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        inner = np.array([right - ratio * (right - left), left + ratio * (right - left)])
        lower, upper = function(inner)
        left, right = (left, float(inner[1])) if lower >= upper else (float(inner[0]), right)
    candidates = np.array([grid[best], left, (left + right) / 2, right])
    values = function(candidates)
    top = int(np.argmax(values))
    return float(candidates[top]), float(values[top])


def derivative(function: Callable[[T], T], x: T, step: float) -> T:
    """Five-point central difference, exact on polynomials of degree four."""
    inner = function(x + step) - function(x - step)
    outer = function(x + 2 * step) - function(x - 2 * step)
    return (8 * inner - outer) / (12 * step)


# -- spheres and balls --------------------------------------------------------------------------


def half_mean(dim: int) -> float:
    """A_d: the mean of û_1 over a unit sphere where it is positive, zero elsewhere."""
    return math.gamma(dim / 2) / (2 * math.sqrt(math.pi) * math.gamma((dim + 1) / 2))


def equator_density(dim: int) -> float:
    """B_d: the density of û_1 at 0 on a unit sphere."""
    return math.gamma(dim / 2) / (math.sqrt(math.pi) * math.gamma((dim - 1) / 2))


def sphere_area(dim: int) -> float:
    """σ_{d−1}: the area of the unit sphere in R^d."""
    return float(2 * math.pi ** (dim / 2) / math.gamma(dim / 2))


def ball_density(t: Array, dim: int) -> Array:
    """The density of one coordinate of a uniform point in the unit ball of R^d."""
    return equator_density(dim + 2) * np.clip(1 - t**2, 0, None) ** ((dim - 1) / 2)


def ball_cdf(t: Array, dim: int) -> Array:
    """Its distribution function; `dim` − 2 in place of `dim` gives that of a unit sphere."""
    t = np.clip(t, -1.0, 1.0)
    root = np.sqrt(1 - t**2)
    power = 0 if dim % 2 else -1
    total = t if dim % 2 else np.arcsin(t)
    while power < dim - 1:  # ∫ (1 − t²)^(n/2) from that of n − 2
        power += 2
        total = (t * root**power + power * total) / (power + 1)
    return np.asarray(0.5 + equator_density(dim + 2) * total)


def ball_points(rng: np.random.Generator, num: int, dim: int) -> Array:
    """Uniform points of the unit ball: `dim` coordinates of the sphere two dimensions up."""
    points = rng.standard_normal((num, dim + 2))
    return np.asarray(points[:, :dim] / np.linalg.norm(points, axis=1, keepdims=True))


def best_axis_overlap(dim: int) -> float:
    """m_d: the mean over rotations of max_k |⟨ẑ, Re_k⟩|, the orthoplex's best vertex."""
    t, weights = quadrature(0.0, 12.0)
    inside = np.array([math.erf(x / math.sqrt(2)) for x in t]) ** dim
    mean = float(weights @ (1 - inside))  # of the largest of `dim` absolute Gaussians
    return mean * math.gamma(dim / 2) / (math.sqrt(2) * math.gamma((dim + 1) / 2))


def best_triangle_overlap() -> float:
    """The same for the simplex in the plane: the mean of max_v ⟨Rv, n⟩."""
    return 3 * math.sqrt(3) / (2 * math.pi)


# -- radii --------------------------------------------------------------------------------------


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
    def centres(self) -> Array:
        """r_pε·ξ_k."""
        return np.asarray(self.length * probe_fractions(self.num_probes).numpy())

    @property
    def mean(self) -> float:
        """δ."""
        return float(self.centres.mean())

    @property
    def outer(self) -> float:
        """δ_out."""
        return float(self.centres[-1]) * (1 + self.eta_max)

    def density(self, radius: Array) -> Array:
        """q_mix."""
        widths = self.eta_max * self.centres
        scaled = (radius[..., None] - self.centres) / widths
        return np.asarray((bump(scaled) / widths).mean(axis=-1))

    def log_slope(self, radius: Array) -> Array:
        """q'_mix/q_mix, for radii that some probe can have.

        Exponents are compared before they are taken, so it is exact where the density
        underflows.
        """
        widths = self.eta_max * self.centres
        scaled = (radius[..., None] - self.centres) / widths
        inside = np.abs(scaled) < 1
        room = np.where(inside, 1 - scaled**2, 1.0)
        exponent = np.where(inside, -1 / room, -np.inf)
        share = np.exp(exponent - exponent.max(axis=-1, keepdims=True)) / widths
        slopes = (share * -2 * scaled / room**2 / widths).sum(axis=-1)
        return np.asarray(slopes / share.sum(axis=-1))

    def rule(self, *breaks: float) -> tuple[Array, Array]:
        """Radii and their probabilities; the integrand may break at the given radii."""
        if not self.eta_max:
            return self.centres, np.full(self.num_probes, 1 / self.num_probes)
        pieces = [piece for centre in self.centres for piece in self._pieces(centre, breaks)]
        radii, weights = zip(*pieces, strict=True)
        return np.concatenate(radii), np.concatenate(weights) / self.num_probes

    def _pieces(self, centre: float, breaks: Sequence[float]) -> list[tuple[Array, Array]]:
        width = self.eta_max * centre
        inside = sorted(b for b in breaks if abs(b - centre) < width)
        edges = [centre - width, *inside, centre + width]
        rules = [quadrature(a, b) for a, b in pairwise(edges)]
        return [(x, w * bump((x - centre) / width) / width) for x, w in rules]

    def expect(self, function: Function, *breaks: float) -> float:
        """The mean of a function of the radius."""
        radii, weights = self.rule(*breaks)
        return float(weights @ function(radii))

    def draw(self, num: int, generator: torch.Generator) -> Array:
        """Independent radii, jittered by the shipped mollifier."""
        which = torch.randint(self.num_probes, (num,), generator=generator).numpy()
        if not self.eta_max:
            return np.asarray(self.centres[which])
        jitter = Mollifier(self.eta_max).draw(num, generator).numpy()
        return np.asarray(self.centres[which] * (1 + jitter))


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


# -- losses -------------------------------------------------------------------------------------


def uneven_step(x: Array) -> Array:
    """A jump of one at 0 between waves: no homogeneity, so no exponent is forced by scaling."""
    return np.where(x > 0, 1 + 0.5 * np.sin(3 * x), 0.0) + 0.3 * np.cos(2 * x)


# -- directions and steps -----------------------------------------------------------------------


def turns(num: int) -> Array:
    """Rotations of the plane by equally spaced angles, for averages over SO(2)."""
    angle = midpoints(0.0, 2 * math.pi, num)
    return np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(
        num, 2, 2
    )


def rotations(seed: int, num: int, dim: int, *purpose: int) -> Array:
    """Independent Haar rotations, (num, dim, dim)."""
    generator = seeds.generator(seed, "theory rotations", num, dim, *purpose)
    return np.asarray(haar(num, dim, generator, torch.float64).numpy())


def directions(frame: Polytope | Array, rotation: Array) -> Array:
    """Rotated vertices, (n, V, d)."""
    vertices = frame if isinstance(frame, np.ndarray) else frame.vertices().numpy()
    return np.asarray(np.einsum("nij,vj->nvi", rotation, vertices))


class Steps(NamedTuple):
    """Softmax steps of unit radius, one per set of directions."""

    moves: Array  # (n, d)
    costs: Array  # (n, V)
    shares: Array  # (n, V), the weights, rows summing to one
    directions: Array  # (n, V, d)

    def remainders(self, temperature: float) -> Array:
        """Σ_v(p_v − 1/V + C̃_v/(Vε))Rv_v, what the step adds to its linear part, (n, d)."""
        centred = self.costs - self.costs.mean(axis=1, keepdims=True)
        linear = np.einsum("nv,nvd->nd", centred, self.directions)
        return np.asarray(self.moves + linear / (centred.shape[1] * temperature))


def softmax_steps(
    looks: Array,
    loss: Loss,
    base: Array,
    probe_length: float,
    temperature: float,
    num_probes: int = 1,
) -> Steps:
    """The shipped step for every set of directions (n, V, d), from one base point or n.

    Args:
        looks: Unit directions.
        loss: Of points (..., d).
        base: (d,) or (n, d).
        probe_length: r_pε.
        temperature: ε.
        num_probes: K.
    """
    reach = Reach(1.0, probe_length, num_probes)
    still = torch.zeros(len(looks), dtype=torch.float64)
    proposal = propose(0, torch.from_numpy(looks), reach, temperature, 0.0, still)
    origin = np.broadcast_to(base, (len(looks), looks.shape[2]))[:, None, None]
    losses = torch.from_numpy(np.asarray(loss(origin + proposal.probes.numpy()), np.float64))
    move = advance(proposal, losses, RowSoftmax())
    shares = move.plan.weights.numpy() * len(looks)
    return Steps(move.displacement.numpy(), move.costs.numpy(), shares, looks)
