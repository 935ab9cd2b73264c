import math

import numpy as np
import pytest
from scipy import special, stats

from hardstep.geometry import Simplex
from hardstep.theory import numerics, spheres, steps


def test_constants_of_the_sphere():
    assert [spheres.half_mean(d) for d in (2, 3, 4)] == pytest.approx(
        [1 / math.pi, 1 / 4, 2 / (3 * math.pi)]
    )
    assert [spheres.equator_density(d) for d in (2, 3)] == pytest.approx([1 / math.pi, 1 / 2])
    assert [spheres.sphere_area(d) for d in (2, 3)] == pytest.approx([2 * math.pi, 4 * math.pi])


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
def test_ball_marginal_is_an_incomplete_beta_function(dim):
    t = np.linspace(-1.2, 1.2, 25)
    inside = special.betainc(0.5, (dim + 1) / 2, np.clip(t**2, 0, 1))
    expected = (1 + np.sign(t) * inside) / 2
    np.testing.assert_allclose(spheres.ball_cdf(t, dim), expected, atol=1e-13)
    slope = numerics.derivative(lambda x: spheres.ball_cdf(x, dim), np.array([0.2]), 1e-3)
    np.testing.assert_allclose(slope, spheres.ball_density(np.array([0.2]), dim), rtol=1e-9)


def test_two_dimensions_less_give_the_sphere():
    t = np.array([-0.5, 0.3])
    np.testing.assert_allclose(spheres.ball_cdf(t, 1), (1 + t) / 2)  # Archimedes
    np.testing.assert_allclose(spheres.ball_cdf(t, 0), 1 - np.arccos(t) / math.pi)


def test_ball_points_are_uniform():
    points = spheres.ball_points(np.random.default_rng(0), 20_000, 3)
    radius = np.linalg.norm(points, axis=1)
    assert stats.kstest(radius**3, "uniform").pvalue > 1e-3
    assert stats.kstest(points[:, 1], lambda t: spheres.ball_cdf(t, 3)).pvalue > 1e-3


def test_best_overlaps():
    found = [spheres.best_axis_overlap(d) for d in (2, 3, 4, 8)]
    assert found == pytest.approx([2 * math.sqrt(2) / math.pi, 0.8311896, 0.7791226, 0.6504782])
    looks = steps.directions(Simplex(2), steps.turns(3600))
    best = looks[:, :, 0].max(axis=1).mean()
    assert spheres.best_triangle_overlap() == pytest.approx(best, abs=1e-6)


def test_unit_vectors_are_unit_and_centered():
    found = spheres.unit_vectors(np.random.default_rng(0), 20_000, 3)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0)
    assert np.abs(found.mean(axis=0)).max() < 4 / math.sqrt(3 * 20_000)
