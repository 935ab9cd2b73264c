"""Policy search (rl-policy-search): returns are noisy, and what their noise does to weights."""

import numpy as np
import torch

from hardstep.optim.quantities import return_radius
from hardstep.solvers import RowSoftmax
from hardstep.theory.numerics import slope
from hardstep.theory.suite import Evidence, Setup, check


@check("K1", "rl-policy-search", "M")
def returns(setup: Setup) -> Evidence:
    """All empirical costs are within their radius as often as claimed."""
    candidates, horizon, repeats, level = 64, 20, 2000, 0.05
    episodes = np.array([8, 32, 128, 512])

    def exceedance(num: int, width: float, common: bool) -> float:
        rng = setup.rng(1, num)
        heads = rng.binomial(num, 0.5, (repeats, 1 if common else candidates))
        worst = np.abs(horizon * (2 * heads / num - 1)).max(axis=1)
        radius = return_radius(horizon, 1.0, candidates, num, level) * width
        return float((worst > radius).mean())

    def facts(width: float) -> dict[str, float]:
        radii = [width * return_radius(horizon, 1.0, candidates, int(n), level) for n in episodes]
        return {
            "exceedance": max(exceedance(int(n), width, False) for n in episodes),
            "common draws": max(exceedance(int(n), width, True) for n in episodes),
            "slope": slope(episodes, radii),
            "radius at M = 8": radii[0],
        }

    expected = {"slope": -0.5, "radius at M = 8": 28.01}
    return Evidence(
        facts(1.0), expected, level, {"half the width": facts(0.5)},
        tols={"slope": 1e-12, "radius at M = 8": 0.005},
        also=lambda v: max(v["exceedance"], v["common draws"]) <= level,
    )  # fmt: skip


@check("K2", "rl-policy-search", "X")
def weight_stability(setup: Setup) -> Evidence:
    """Costs off by η move a weight by at most η/(2ε)."""
    temperature, noise, num = 0.1, 0.01, 20_000
    rng = setup.rng(2)
    gaps, weights = [], []
    for num_vertices in (2, 3, 5, 9):
        spread = temperature * rng.choice([0.1, 1.0, 5.0], (num, 1))
        costs = spread * rng.standard_normal((num, num_vertices))
        signs = rng.choice([-1.0, 1.0], costs.shape)
        signs[: num // 2] = 1.0
        signs[np.arange(num // 2), rng.integers(num_vertices, size=num // 2)] = -1.0
        before, after = (
            RowSoftmax().solve(torch.from_numpy(c), temperature).weights.numpy() * num
            for c in (costs, costs + noise * signs)
        )
        logits = np.log(after) - np.log(before)
        gaps.append((logits.max(axis=1) - logits.min(axis=1)).max())
        weights.append(np.abs(after - before).max())

    def facts(claim: float) -> dict[str, float]:
        return {
            "logit gap over 2η/ε": float(np.max(gaps)) / (2 * noise / temperature),
            "weight over its bound": float(np.max(weights)) / (claim * noise / temperature),
        }

    return Evidence(
        facts(0.5), {"logit gap over 2η/ε": 1.0, "weight over its bound": 1.0}, 0.05,
        {"η/(4ε) as the bound": facts(0.25)},
        also=lambda v: max(v.values()) <= 1 + 1e-9,
        note="The sharp constant is 1/2 of the 1/ε that the paper states as an upper bound.",
    )  # fmt: skip
