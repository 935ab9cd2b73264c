import math

import numpy as np
import pytest
from scipy import integrate

from hardstep import seeds
from hardstep.geometry import Mollifier
from hardstep.theory import numerics, radii
from hardstep.theory.radii import RadiusLaw

LAWS = [RadiusLaw(0.8), RadiusLaw(1.0, 3), RadiusLaw(1.0, 1, 0.3), RadiusLaw(0.7, 5, 0.5)]


def test_bump_is_a_density_with_the_stated_variance():
    mass, _ = integrate.quad(lambda t: float(radii.bump(np.array(t))), -1, 1, epsabs=1e-13)
    x, weights = numerics.quadrature(-1.0, 1.0)
    assert mass == pytest.approx(1.0, abs=1e-12)
    assert weights @ (radii.bump(x) * x**2) == pytest.approx(radii.BUMP_VARIANCE, abs=1e-8)
    assert radii.bump_survival(0.0) == pytest.approx(0.5, abs=1e-12)


def test_bump_is_what_the_mollifier_draws():
    drawn = Mollifier(0.4).draw(50_000, seeds.generator(0, "test")).numpy() / 0.4
    above = (drawn > 0.3).mean()
    assert above == pytest.approx(radii.bump_survival(0.3), abs=5 * math.sqrt(0.25 / 50_000))
    assert drawn.var() == pytest.approx(radii.BUMP_VARIANCE, abs=0.005)


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
    x = numerics.midpoints(0.1, 1.2, 4000)
    assert law.density(x).mean() * 1.1 == pytest.approx(1.0, abs=1e-6)
    radius = np.array([0.2, 0.45, 0.8])
    slope = numerics.derivative(lambda r: np.log(law.density(r)), radius, 1e-4)
    np.testing.assert_allclose(law.log_slope(radius), slope, rtol=1e-7)


@pytest.mark.parametrize("dim", [2, 3, 4])
@pytest.mark.parametrize("law", LAWS)
def test_gradients_are_derivatives_of_their_averages(law, dim):
    for offset in (0.0, 0.11):
        tail = numerics.derivative(lambda x: radii.tail_cdf(law, dim, x), -offset, 1e-4)
        probe = numerics.derivative(lambda x: radii.probe_cdf(law, dim, x), -offset, 1e-4)
        assert radii.tail_gradient(law, dim, offset) == pytest.approx(tail, rel=1e-7)
        assert radii.probe_gradient(law, dim, offset) == pytest.approx(probe, rel=1e-7)


def test_without_jitter_gradients_have_one_radius():
    law = RadiusLaw(2.0)  # radius 1
    assert radii.tail_gradient(law, 2, 0.6) == pytest.approx(2 / math.pi * 0.8)
    assert radii.probe_gradient(law, 2, 0.6) == pytest.approx(1 / math.pi / 0.8)
    assert radii.probe_gradient(law, 2, 1.1) == 0.0
