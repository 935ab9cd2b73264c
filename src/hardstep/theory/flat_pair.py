"""Flat pairs: how often an antithetic pair of probes sees no difference of a quantized loss."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hardstep.nn import quantize
from hardstep.theory.numerics import Array, Curve, Curves, tabulate
from hardstep.theory.pwc_loss import normal
from hardstep.theory.suite import Evidence, Setup, check

Rounding = Callable[[Tensor], Tensor]
BIN, COORDINATES = 0.05, 1538  # the second as in the paper's quantized head


def _flat_fraction(setup: Setup, radius: float, centered: bool, rounding: Rounding) -> float:
    """The share of pairs θ ± μz at which a loss of rounded coordinates is the same."""
    rng, flat, parts = setup.rng(8), 0, 4 if setup.quick else 16
    readout = normal(rng, 1.0, COORDINATES)
    for _ in range(parts):
        base = torch.from_numpy(rng.uniform(-1.0, 1.0, (500, COORDINATES)))
        base = quantize(base, BIN) if centered else base
        move = radius * normal(rng, 1.0, 500, COORDINATES)
        up, down = rounding(base + move) @ readout, rounding(base - move) @ readout
        flat += int((up == down).sum())
    return flat / (500 * parts)


def flat_anywhere(radius: float) -> float:
    """The share of flat pairs for a probe radius in bins, from points anywhere in their bins."""
    return float(max(0.0, 1 - 2 * radius * math.sqrt(2 / math.pi)) ** COORDINATES)


def flat_at_centers(radius: float) -> float:
    """The same from points at the centers of their bins."""
    return float(math.erf(1 / (2 * math.sqrt(2) * radius)) ** COORDINATES)


@check("I8", "flat-pair", "M")
def flat_pairs(setup: Setup) -> Evidence:
    """Antithetic pairs are flat while no coordinate changes its level."""

    def facts(rounding: Rounding) -> dict[str, float]:
        return {
            "μ = 1e-5": _flat_fraction(setup, 1e-5, False, rounding),
            "μ = 2e-5": _flat_fraction(setup, 2e-5, False, rounding),
            "μ = 7e-3, at bin centers": _flat_fraction(setup, 7e-3, True, rounding),
        }

    expected = {
        "μ = 1e-5": flat_anywhere(1e-5 / BIN),
        "μ = 2e-5": flat_anywhere(2e-5 / BIN),
        "μ = 7e-3, at bin centers": flat_at_centers(7e-3 / BIN),
    }
    tol = max(0.03, 4 * 0.5 / math.sqrt(2000 if setup.quick else 8000))
    return Evidence(
        facts(lambda points: quantize(points, BIN)), expected, tol,
        {"a smooth loss": facts(lambda points: points)},
        note="The printed fractions come from one run each and follow neither law at one bin "
        "width; with all coordinates moving at once the transition is at Δ_q/(1.6 d), not at Δ_q.",
    )  # fmt: skip


def tabulate_flat_pairs() -> tuple[Curves, Curves]:
    """Shares of flat pairs over the probe radius in bins, measured and by their laws (I8)."""

    def measured(radii: Array, centered: bool) -> Curve:
        def share(radius: float) -> float:
            return _flat_fraction(Setup(), radius * BIN, centered, lambda p: quantize(p, BIN))

        return tabulate(radii, share)

    radii = np.geomspace(1e-5, 1.0, 400)
    found = {
        "anywhere": measured(np.geomspace(3e-5, 3e-3, 6), centered=False),
        "bin centers": measured(np.geomspace(0.11, 0.2, 6), centered=True),
    }
    laws = {
        "anywhere": tabulate(radii, flat_anywhere),
        "bin centers": tabulate(radii, flat_at_centers),
    }
    return found, laws
