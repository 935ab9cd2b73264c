"""Spheres and balls: constants, marginals, uniform points."""

import math

import numpy as np

from hardstep.theory.numerics import Array, quadrature


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


def unit_vectors(rng: np.random.Generator, num: int, dim: int) -> Array:
    """Independent uniform points of the unit sphere, (num, dim)."""
    gaussian = rng.standard_normal((num, dim))
    return np.asarray(gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True))
