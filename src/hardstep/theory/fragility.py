"""Fragility: a cold softmax has one winner, whatever the number of blocks."""

import math
from itertools import islice

import numpy as np

from hardstep.solvers import RowSoftmax
from hardstep.theory.numerics import Array, slope
from hardstep.theory.spheres import best_axis_overlap, unit_vectors
from hardstep.theory.stable_schedules_walks import DECAY
from hardstep.theory.steps import (
    Radius,
    Stepper,
    directions,
    frames,
    greedy_stepper,
    quadratic,
    rotations,
    step_on,
    walk,
)
from hardstep.theory.suite import Evidence, Setup, check


def _envelope_slack(
    looks: Array, costs: Array, off_winner: float, temperature: float
) -> tuple[float, float, float]:
    """How far weights and step lengths are inside their bounds; negative outside."""
    move = step_on(looks, costs, RowSoftmax(), temperature)
    top = move.plan.weights.amax(dim=1).numpy() * len(costs)
    length = move.displacement.norm(dim=1).numpy()
    return (
        float(top.min()) - (1 - off_winner),
        float(length.min()) - (1 - 2 * off_winner),
        1 - float(length.max()),
    )


def _margin_rows(rng: np.random.Generator, num: int, num_vertices: int) -> Array:
    """Rows whose best entry is 0 and the others at least 1; the first has them all at 1."""
    rows = 1 + rng.exponential(rng.choice([0.01, 0.3, 3.0], (num, 1)), (num, num_vertices))
    rows[0] = 1.0
    rows[np.arange(num), rng.integers(num_vertices, size=num)] = 0.0
    return np.asarray(rows)


@check("G1", "fragility", "X")
def envelope(setup: Setup) -> Evidence:
    """A softmax colder than its margin has one winner and a pinned step."""
    num, names = 10_000, ("top weight", "lower end", "upper end")
    turned = rotations(setup.seed, num, 4, 1)
    looks = {frame.num_vertices: directions(frame, turned) for frame in frames(4).values()}

    def slack(num_rows: int, factor: float) -> dict[str, float]:
        found = []
        for num_vertices, along in looks.items():
            costs = _margin_rows(setup.rng(num_vertices), num, num_vertices)[:num_rows]
            for off_winner in (0.01, 0.1, 0.4):
                temperature = factor / math.log(num_vertices / off_winner)
                found.append(_envelope_slack(along[:num_rows], costs, off_winner, temperature))
        return dict(zip(names, np.min(found, axis=0).tolist(), strict=True))

    return Evidence(
        slack(num, 1.0), {}, 1e-12, {"the worst row, three times as warm": slack(1, 3.0)},
        also=lambda v: all(v[name] >= -1e-12 for name in names),
        note="Distances inside the bounds 1 − ϱ, 1 − 2ϱ and 1, the least over all rows and ϱ.",
    )  # fmt: skip


def _block_excursions(
    setup: Setup, curvature: Array, dim: int, radius: Radius = lambda step: 1.0
) -> dict[str, float]:
    """Late excursion of d/4 blocks on one loss: mean per block, and of the whole vector."""
    blocks = dim // 4
    repeats = max(1, 1000 // blocks)
    start = 0.6 * unit_vectors(setup.rng(10, dim), repeats * blocks, 4)

    def joint(points: Array) -> Array:  # a block's cost is the loss of all of them
        own = quadratic(curvature)(points)
        return np.asarray(own + own.mean() * (blocks - 1))

    stepper = Stepper(joint, greedy_stepper(curvature, 10.0).reach)
    late = islice(walk(setup, 10, stepper, start, 60, radius), 20, None)
    norms = np.array([np.linalg.norm(at, axis=1) for at in late])
    whole = np.sqrt((norms.reshape(40, repeats, blocks) ** 2).sum(axis=2))
    return {"block": float(norms.mean()), "whole": float(whole.mean())}


@check("G10", "fragility", "M")
def dimension_flatness(setup: Setup) -> Evidence:
    """The excursion of a block does not depend on their number."""
    dims = (100, 1000, 10_000) if setup.quick else (100, 1000, 10_000, 100_000)
    round_bowl, narrow = np.full(4, 2.0), np.linspace(1.0, 30.0, 4)
    found = {d: _block_excursions(setup, round_bowl, d) for d in dims}
    other = {d: _block_excursions(setup, narrow, d) for d in dims}
    decayed = _block_excursions(setup, round_bowl, dims[0], DECAY)
    measured = {
        "slope": slope(dims, [found[d]["block"] for d in dims]),
        "slope, H = diag(1 … 30)": slope(dims, [other[d]["block"] for d in dims]),
        "excursion": found[dims[-1]]["block"],
        "decayed / flat": decayed["block"] / found[dims[0]]["block"],
    }
    expected = {"slope": 0.0, "slope, H = diag(1 … 30)": 0.0}
    expected["excursion"] = 1 / (2 * best_axis_overlap(4))
    whole = slope(dims, [found[d]["whole"] for d in dims])
    return Evidence(
        measured, expected, 0.002, {"the vector of all blocks": measured | {"slope": whole}},
        tols={"slope, H = diag(1 … 30)": 0.004, "excursion": 0.005},
        also=lambda v: v["decayed / flat"] <= 0.25, paper={"slope": 0.0003}, paper_tol=0.002,
    )  # fmt: skip
