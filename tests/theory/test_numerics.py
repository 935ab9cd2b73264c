import numpy as np
import pytest

from hardstep.theory import numerics


def test_farthest_keeps_the_sign():
    assert numerics.farthest([0.9, 1.05, 1.0], 1.0) == 0.9
    found = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 5.0}]
    assert numerics.farthest_each(found, {"a": 2.5, "b": 4.0}) == {"a": 1.0, "b": 2.0}


def test_slope_is_the_exponent():
    x = np.array([1.0, 2.0, 5.0])
    assert numerics.slope(x, 3 * x**-1.5) == pytest.approx(-1.5, abs=1e-12)


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.5, 1.5, 4.0])
def test_quadrature_takes_half_powers_at_both_ends(power):
    x, weights = numerics.quadrature(2.0, 5.0)
    assert weights @ (x - 2) ** power == pytest.approx(3 ** (power + 1) / (power + 1), rel=1e-10)
    assert weights @ (5 - x) ** power == pytest.approx(3 ** (power + 1) / (power + 1), rel=1e-8)


def test_quadrature_over_many_intervals_at_once():
    low = np.array([0.0, 1.0])
    x, weights = numerics.quadrature(low, np.array([1.0, 3.0]), 50)
    np.testing.assert_allclose((weights * x).sum(axis=1), [0.5, 4.0], rtol=1e-12)


@pytest.mark.parametrize("top", [-1.0, 0.0, 0.3, 2.0])
def test_maximize_finds_interior_and_end_points(top):
    where, value = numerics.maximize(lambda x: 4 - (x - top) ** 2, -1.0, 2.0)
    assert where == pytest.approx(top, abs=1e-7)
    assert value == pytest.approx(4.0, abs=1e-14)


def test_derivative_is_exact_on_quartics():
    assert numerics.derivative(lambda x: x**4 - x, 0.7, 0.1) == pytest.approx(4 * 0.7**3 - 1)
