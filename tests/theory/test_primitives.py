import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from hardstep import seeds
from hardstep.geometry import Mollifier, Orthoplex, Simplex
from hardstep.theory import primitives
from hardstep.theory.primitives import RadiusLaw

LAWS = [RadiusLaw(0.8), RadiusLaw(1.0, 3), RadiusLaw(1.0, 1, 0.3), RadiusLaw(0.7, 5, 0.5)]


# -- numbers ------------------------------------------------------------------------------------


def test_predicate_judges_every_name_by_its_own_tolerance():
    ok = primitives.within({"a": 1.0, "b": 2.0}, {"a": 0.1, "b": 0.0})
    assert ok({"a": 1.05, "b": 2.0})
    assert not ok({"a": 1.05, "b": 2.01})


def test_farthest_keeps_the_sign():
    assert primitives.farthest([0.9, 1.05, 1.0], 1.0) == 0.9


def test_slope_is_the_exponent():
    x = np.array([1.0, 2.0, 5.0])
    assert primitives.slope(x, 3 * x**-1.5) == pytest.approx(-1.5, abs=1e-12)


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.5, 1.5, 4.0])
def test_quadrature_takes_half_powers_at_both_ends(power):
    x, weights = primitives.quadrature(2.0, 5.0)
    assert weights @ (x - 2) ** power == pytest.approx(3 ** (power + 1) / (power + 1), rel=1e-10)
    assert weights @ (5 - x) ** power == pytest.approx(3 ** (power + 1) / (power + 1), rel=1e-8)


def test_quadrature_over_many_intervals_at_once():
    low = np.array([0.0, 1.0])
    x, weights = primitives.quadrature(low, np.array([1.0, 3.0]), 50)
    np.testing.assert_allclose((weights * x).sum(axis=1), [0.5, 4.0], rtol=1e-12)


@pytest.mark.parametrize("top", [-1.0, 0.0, 0.3, 2.0])
def test_maximise_finds_interior_and_end_points(top):
    where, value = primitives.maximise(lambda x: 4 - (x - top) ** 2, -1.0, 2.0)
    assert where == pytest.approx(top, abs=1e-7)
    assert value == pytest.approx(4.0, abs=1e-14)


def test_derivative_is_exact_on_quartics():
    assert primitives.derivative(lambda x: x**4 - x, 0.7, 0.1) == pytest.approx(4 * 0.7**3 - 1)


# -- spheres and balls --------------------------------------------------------------------------


def test_constants_of_the_sphere():
    assert [primitives.half_mean(d) for d in (2, 3, 4)] == pytest.approx(
        [1 / math.pi, 1 / 4, 2 / (3 * math.pi)]
    )
    assert [primitives.equator_density(d) for d in (2, 3)] == pytest.approx([1 / math.pi, 1 / 2])
    assert [primitives.sphere_area(d) for d in (2, 3)] == pytest.approx([2 * math.pi, 4 * math.pi])


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
def test_ball_marginal_is_an_incomplete_beta_function(dim):
    t = np.linspace(-1.2, 1.2, 25)
    inside = special.betainc(0.5, (dim + 1) / 2, np.clip(t**2, 0, 1))
    expected = (1 + np.sign(t) * inside) / 2
    np.testing.assert_allclose(primitives.ball_cdf(t, dim), expected, atol=1e-13)
    slope = primitives.derivative(lambda x: primitives.ball_cdf(x, dim), np.array([0.2]), 1e-3)
    np.testing.assert_allclose(slope, primitives.ball_density(np.array([0.2]), dim), rtol=1e-9)


def test_two_dimensions_less_give_the_sphere():
    t = np.array([-0.5, 0.3])
    np.testing.assert_allclose(primitives.ball_cdf(t, 1), (1 + t) / 2)  # Archimedes
    np.testing.assert_allclose(primitives.ball_cdf(t, 0), 1 - np.arccos(t) / math.pi)


def test_ball_points_are_uniform():
    points = primitives.ball_points(np.random.default_rng(0), 20_000, 3)
    radius = np.linalg.norm(points, axis=1)
    assert stats.kstest(radius**3, "uniform").pvalue > 1e-3
    assert stats.kstest(points[:, 1], lambda t: primitives.ball_cdf(t, 3)).pvalue > 1e-3


def test_best_overlaps():
    found = [primitives.best_axis_overlap(d) for d in (2, 3, 4, 8)]
    assert found == pytest.approx([2 * math.sqrt(2) / math.pi, 0.8311896, 0.7791226, 0.6504782])
    looks = primitives.directions(Simplex(2), primitives.turns(3600))
    best = looks[:, :, 0].max(axis=1).mean()
    assert primitives.best_triangle_overlap() == pytest.approx(best, abs=1e-6)


# -- radii --------------------------------------------------------------------------------------


def test_bump_is_a_density_with_the_stated_variance():
    mass, _ = integrate.quad(lambda t: float(primitives.bump(np.array(t))), -1, 1, epsabs=1e-13)
    x, weights = primitives.quadrature(-1.0, 1.0)
    assert mass == pytest.approx(1.0, abs=1e-12)
    assert weights @ (primitives.bump(x) * x**2) == pytest.approx(
        primitives.BUMP_VARIANCE, abs=1e-8
    )
    assert primitives.bump_survival(0.0) == pytest.approx(0.5, abs=1e-12)


def test_bump_is_what_the_mollifier_draws():
    drawn = Mollifier(0.4).draw(50_000, seeds.generator(0, "test")).numpy() / 0.4
    above = (drawn > 0.3).mean()
    assert above == pytest.approx(primitives.bump_survival(0.3), abs=5 * math.sqrt(0.25 / 50_000))
    assert drawn.var() == pytest.approx(primitives.BUMP_VARIANCE, abs=0.005)


@pytest.mark.parametrize("law", LAWS)
def test_mean_and_reach_of_radii(law):
    assert law.mean == pytest.approx(law.length / 2)
    last = law.num_probes / (law.num_probes + 1)
    assert law.outer == pytest.approx(law.length * last * (1 + law.eta_max))
    assert law.expect(lambda r: r) == pytest.approx(law.mean, abs=1e-12)
    assert law.expect(np.ones_like, 0.3, 0.4) == pytest.approx(1.0, abs=1e-12)
    drawn = law.draw(20_000, seeds.generator(0, "test"))
    assert drawn.max() <= law.outer
    assert drawn.mean() == pytest.approx(law.mean, abs=5 * drawn.std() / math.sqrt(20_000) + 1e-12)


def test_density_and_its_logarithmic_slope():
    law = RadiusLaw(1.0, 3, 0.5)
    x = primitives.midpoints(0.1, 1.2, 4000)
    assert law.density(x).mean() * 1.1 == pytest.approx(1.0, abs=1e-6)
    radius = np.array([0.2, 0.45, 0.8])
    slope = primitives.derivative(lambda r: np.log(law.density(r)), radius, 1e-4)
    np.testing.assert_allclose(law.log_slope(radius), slope, rtol=1e-7)


@pytest.mark.parametrize("dim", [2, 3, 4])
@pytest.mark.parametrize("law", LAWS)
def test_gradients_are_derivatives_of_their_averages(law, dim):
    for offset in (0.0, 0.11):
        tail = primitives.derivative(lambda x: primitives.tail_cdf(law, dim, x), -offset, 1e-4)
        probe = primitives.derivative(lambda x: primitives.probe_cdf(law, dim, x), -offset, 1e-4)
        assert primitives.tail_gradient(law, dim, offset) == pytest.approx(tail, rel=1e-7)
        assert primitives.probe_gradient(law, dim, offset) == pytest.approx(probe, rel=1e-7)


def test_without_jitter_gradients_have_one_radius():
    law = RadiusLaw(2.0)  # radius 1
    assert primitives.tail_gradient(law, 2, 0.6) == pytest.approx(2 / math.pi * 0.8)
    assert primitives.probe_gradient(law, 2, 0.6) == pytest.approx(1 / math.pi / 0.8)
    assert primitives.probe_gradient(law, 2, 1.1) == 0.0


# -- directions and steps -----------------------------------------------------------------------


@pytest.mark.parametrize("frame", [Orthoplex(2), Orthoplex(5), Simplex(2), Simplex(5)])
def test_frames_are_centred_and_tight(frame):
    vertices = frame.vertices().numpy()
    assert np.abs(vertices.sum(axis=0)).max() <= 1e-14
    scale = len(vertices) / frame.dim
    np.testing.assert_allclose(vertices.T @ vertices, scale * np.eye(frame.dim), atol=1e-14)


def test_turns_average_to_nothing():
    turned = primitives.turns(12)
    np.testing.assert_allclose(turned.mean(axis=0), 0, atol=1e-15)
    squares = turned @ turned.swapaxes(1, 2)
    np.testing.assert_allclose(squares, np.broadcast_to(np.eye(2), (12, 2, 2)), atol=1e-15)


def test_rotations_follow_the_seed():
    assert np.array_equal(primitives.rotations(1, 5, 3), primitives.rotations(1, 5, 3))
    assert not np.array_equal(primitives.rotations(1, 5, 3), primitives.rotations(2, 5, 3))


@pytest.mark.parametrize("num_probes", [1, 3])
def test_steps_are_softmax_averages_of_directions(num_probes):
    looks = primitives.directions(Simplex(3), primitives.rotations(0, 7, 3))
    base = np.array([0.1, -0.2, 0.3])

    def loss(points):
        return (points**2 * np.array([1.0, 2.0, 3.0])).sum(axis=-1)

    steps = primitives.softmax_steps(looks, loss, base, 0.6, 0.5, num_probes)
    lengths = [0.6 * k / (num_probes + 1) for k in range(1, num_probes + 1)]
    costs = np.mean([loss(base + length * looks) for length in lengths], axis=0)
    shares = torch.softmax(torch.from_numpy(-costs / 0.5), dim=1).numpy()
    moves = np.einsum("nv,nvd->nd", shares, looks)
    np.testing.assert_allclose(steps.costs, costs, atol=1e-14)
    np.testing.assert_allclose(steps.shares, shares, atol=1e-14)
    np.testing.assert_allclose(steps.moves, moves, atol=1e-14)
    linear = 1 / 4 - (costs - costs.mean(axis=1, keepdims=True)) / (4 * 0.5)
    rest = np.einsum("nv,nvd->nd", shares - linear, looks)
    np.testing.assert_allclose(steps.remainders(0.5), rest, atol=1e-14)


def test_uneven_step_jumps_by_one():
    across = primitives.uneven_step(np.array([-1e-12, 1e-12]))
    assert across[1] - across[0] == pytest.approx(1.0)
