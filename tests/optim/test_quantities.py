import math

import pytest

from hardstep.errors import ConfigError
from hardstep.optim import quantities


def test_radii_by_hand():
    assert quantities.smoothing_radius(0.5) == 0.25
    assert quantities.outer_reach(2.0) == 1.0
    assert quantities.outer_reach(2.0, num_probes=3, jitter=0.05) == pytest.approx(1.575)
    assert quantities.joint_radius(543, 0.5) == pytest.approx(11.651180)
    assert quantities.step_constant(1.0, 8) == 0.0625


def test_the_floor_by_hand():
    floor = quantities.bias_floor(10, 2, 0.5, square=0.3, saturation=0.02)
    assert floor == pytest.approx((14.4, 3.2))


@pytest.mark.parametrize("temperature", [1e-6, 0.1, 10.0])
def test_the_optimal_radius_minimizes_the_bound(temperature):
    best = quantities.optimal_probe_multiple(2.0, 3.0, 0.7, temperature)

    def bound(r):
        return 2 * r**4 + 3 * temperature / r + 0.7 * r**4 * temperature**4

    assert bound(best) < min(bound(0.99 * best), bound(1.01 * best))


def test_ranks_the_paper_prints():
    assert quantities.jl_rank(1e6, 0.5) == 664
    assert quantities.jl_rank(1e6, 0.1) == 11_842
    assert quantities.jl_compression(1e6, 0.5, 124_000_000) == pytest.approx(5.35e-6, rel=1e-2)


def test_the_radius_of_mean_returns():
    """The values the specification verified for N = 64, H = 20, R = 1."""
    found = [quantities.return_radius(20, 1.0, 64, m) for m in (8, 32, 128, 512)]
    assert found == pytest.approx([28.01, 14.01, 7.00, 3.50], abs=6e-3)
    assert found[0] == pytest.approx(40 * math.sqrt(math.log(2560) / 16))


@pytest.mark.parametrize(
    "call",
    [
        lambda: quantities.smoothing_radius(0),
        lambda: quantities.jl_rank(100, 1.5),
        lambda: quantities.optimal_probe_multiple(1, 1, -1, 1),
        lambda: quantities.return_radius(20, 1, 64, 0),
    ],
)
def test_numbers_out_of_range_are_refused(call):
    with pytest.raises(ConfigError, match="must be"):
        call()
