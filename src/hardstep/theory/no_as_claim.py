"""Remark no-as-claim and others: examples and small arithmetic behind them."""

import math

import numpy as np

from hardstep.optim.quantities import jl_rank
from hardstep.schedules import PowerDecay
from hardstep.theory.numerics import derivative
from hardstep.theory.suite import Evidence, Setup, Values, check

LOW, HIGH = 1.6, 2.4  # where the drift is switched


def _cycles(exponent: float, num: int = 1_000_000) -> tuple[int, float]:
    """Full cycles of Y ← Y − r_t(a_t − 1), r_t = t^−exponent, and how far it leaves its band.

    a_t is 0 from Y ≤ 1.6 on and 2 from Y ≥ 2.4 on; the band reaches one step beyond both. Between
    two switches Y follows the sums of r_t, so only switches are looped over.
    """
    steps = np.arange(1, num + 1) ** -exponent
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    y, rising, at, switches, beyond = 2.0, True, 0, 0, -math.inf
    while at < num:
        target = HIGH - y if rising else y - LOW
        end = min(int(np.searchsorted(sums, sums[at] + target)), num)
        end = max(end, at + 1)  # a target lost to rounding still takes a step
        moved = sums[at + 1 : end + 1] - sums[at]
        path = y + moved if rising else y - moved
        outside = np.maximum(path - HIGH, LOW - path) - steps[at:end]
        beyond = max(beyond, float(outside.max()))
        y, at = float(path[-1]), end
        if (y >= HIGH) if rising else (y <= LOW):
            rising, switches = not rising, switches + 1
    return switches // 2, beyond


def _hole(x: float, y: float) -> float:
    """1 − exp(−‖θ − (0, 1)‖²)."""
    return 1 - math.exp(-(x**2) - (y - 1) ** 2)


@check("E10", "no-as-claim", "X")
def small_arithmetic(_: Setup) -> Evidence:
    """Small examples: a slope, a drift that cycles for ever, a decay, two ranks."""
    across = derivative(lambda x: _hole(x, 0.0), 0.0, 1e-3)
    down = derivative(lambda y: _hole(0.0, y), 0.0, 1e-3)
    decay = PowerDecay(1.0, 0.6)

    def numbers(exponent: float) -> Values:
        cycles, beyond = _cycles(exponent)
        return {
            "slope across": across,
            "slope down": down,
            "cycles": float(cycles),
            "beyond the band": beyond,
            "decay over 3,180 steps": decay(0) / decay(3179),
            "rank for distortion 1/2": float(jl_rank(1e6, 0.5)),
            "rank for distortion 1/10": float(jl_rank(1e6, 0.1)),
        }

    expected = {
        "slope across": 0.0,
        "slope down": -2 / math.e,
        "decay over 3,180 steps": math.exp(0.6 * math.log(3180)),
        # 4 ln 10⁶ over 1/12 and over 7/1500
        "rank for distortion 1/2": float(math.ceil(288 * math.log(10))),
        "rank for distortion 1/10": float(math.ceil(36_000 / 7 * math.log(10))),
    }

    return Evidence(
        numbers(0.75), expected, 1e-9, {"a summable schedule, t^-1.5": numbers(1.5)},
        also=lambda v: v["cycles"] >= 3 and v["beyond the band"] <= 0,
        paper={
            "decay over 3,180 steps": 126.0, "rank for distortion 1/2": 664.0,
            "rank for distortion 1/10": 11_842.0,
        },
        paper_tol=0.5,
    )  # fmt: skip
