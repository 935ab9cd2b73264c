import math

import numpy as np
import pytest
import torch
from scipy import stats

from hardstep.errors import ConfigError
from hardstep.geometry import Jitter, Mollifier, probe_fractions

DRAWS = 200_000
VARIANCE = 0.15811364  # of the bump on (−1, 1), by quadrature
FOURTH_MOMENT = 0.05298182  # likewise; it sets the width of the bound on the variance


def draws(eta_max, seed=0):
    return Mollifier(eta_max).draw(DRAWS, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num", [1, 2, 3, 5, 10])
def test_probes_sit_at_k_over_k_plus_one(num):
    expected = [k / (num + 1) for k in range(1, num + 1)]
    assert probe_fractions(num).tolist() == expected
    assert float(probe_fractions(num).mean()) == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("eta_max", [0.05, 0.5])
def test_mollifier_draws_have_the_bumps_variance(eta_max):
    sample = draws(eta_max)
    error = eta_max**2 * math.sqrt((FOURTH_MOMENT - VARIANCE**2) / DRAWS)
    assert abs(float(sample.square().mean()) - VARIANCE * eta_max**2) < 5 * error


@pytest.mark.parametrize("eta_max", [0.05, 0.5, 0.999])
def test_mollifier_draws_stay_inside_the_support_and_use_it(eta_max):
    sample = draws(eta_max)
    assert sample.dtype == torch.float64
    assert float(sample.abs().max()) < eta_max
    assert float(sample.abs().max()) > 0.9 * eta_max


def test_mollifier_draws_are_symmetric():
    sample = draws(0.5)
    assert abs(float(sample.mean())) < 5 * 0.5 * math.sqrt(VARIANCE / DRAWS)
    assert abs(float(sample.sign().mean())) < 5 / math.sqrt(DRAWS)
    assert stats.ks_2samp(sample.numpy(), -draws(0.5, seed=1).numpy()).pvalue > 1e-6


def test_mollifier_draws_follow_the_integral_of_the_density():
    sample = draws(0.5).numpy()
    grid = np.linspace(-1, 1, 4001)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = (grid[1] - grid[0]) / 2
    points = (grid[:-1, None] + half) + half * nodes
    masses = (np.exp(-1 / (1 - points**2)) * weights).sum(axis=1) * half
    assert masses.sum() == pytest.approx(0.44399381616807865, rel=1e-12)
    distribution = np.concatenate([[0.0], np.cumsum(masses) / masses.sum()])
    test = stats.kstest(sample / 0.5, lambda eta: np.interp(eta, grid, distribution))
    assert test.pvalue > 1e-6


def test_the_same_generator_gives_the_same_jitter_and_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    assert torch.equal(draws(0.5), draws(0.5))
    assert not torch.equal(draws(0.5), draws(0.5, seed=1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("eta_max", [0.0, -0.1, 1.0, 2.0, math.nan])
def test_a_jitter_that_could_reverse_a_radius_is_refused(eta_max):
    with pytest.raises(ConfigError, match=rf"eta_max must be in \(0, 1\), got {eta_max}"):
        Mollifier(eta_max)


def test_jitter_is_off_unless_asked_for():
    assert Jitter() == Jitter(probe=None, step=None)
