"""Group G, many steps: how far a run strays from a minimum, and what keeps it there."""

import math
from itertools import islice

import numpy as np

from hardstep.geometry import Orthoplex
from hardstep.schedules import PowerDecay
from hardstep.theory.primitives import (
    Array,
    best_axis_overlap,
    directions,
    rotations,
    slope,
    within,
)
from hardstep.theory.suite import Evidence, Run, check
from hardstep.theory.walks import (
    Radius,
    Stepper,
    mean_square,
    quadratic,
    radial,
    saturated,
    unit_vectors,
    walk,
)

DECAY = PowerDecay(1.0, 0.6)  # the schedule of condition (v)
SPIKE = np.array([1.0, 1.0, 1.0, 100.0])


def _exponent(mean_squares: Array) -> float:
    """Growth of the root mean square over the last three quarters of the steps."""
    time = np.arange(1, len(mean_squares) + 1)
    late = len(mean_squares) // 4
    return slope(time[late:], np.sqrt(mean_squares[late:]))


@check("G2", "stable-schedules", "M")
def excursion(run: Run) -> Evidence:
    """Without drift a walk grows like √t; with it, it follows the radius."""
    num_steps, num_free, num_held = 2500, 4000, 24
    free = mean_square(run, 2, num_free, 4, num_steps)
    start = np.tile(0.6 * unit_vectors(run.rng(20), num_held, 4), (2, 1))

    def radius(step: int) -> Array:  # the first half flat, the second decayed
        return np.repeat([[1.0], [DECAY(step)]], num_held, axis=0)

    bowl = saturated(np.full(4, 2.0), 1.0)
    squares = [(at**2).sum(axis=1) for at in walk(run, 2, bowl, start, num_steps, radius, copies=2)]
    flat, decayed = np.split(np.array(squares), 2, axis=1)
    measured = {
        "free": _exponent(free),
        "flat": _exponent(flat.mean(axis=1)),
        "decayed": _exponent(decayed.mean(axis=1)),
        "free, E‖z‖²/t": float(free[-1]) / num_steps,
    }
    expected = {"free": 0.5, "flat": 0.0, "decayed": -0.6, "free, E‖z‖²/t": 1.0}
    four_errors = 4 * math.sqrt(2 / 4 / num_free)  # ‖z‖²/t is χ²_4/4 in the limit
    tols = {"free": 0.03, "flat": 0.02, "decayed": 0.02, "free, E‖z‖²/t": four_errors}
    return Evidence(
        measured=measured,
        expected=expected,
        tol=0.03,
        ok=within(expected, tols),
        controls={"no drift": measured | {"flat": measured["free"]}},
        paper={"free": 0.507, "flat": 0.0, "decayed": -0.61},
        paper_tol={"free": 0.05, "flat": 0.02, "decayed": 0.02},
        note=(
            "Uniform weights on a centred frame do not move at all; the paper's free walk must "
            "mean a uniformly drawn vertex. With its twelve runs the exponent scatters by 0.05."
        ),
    )


def _amplitudes(
    run: Run, stepper: Stepper, start: Array, num_steps: int, burn: int, radius: float = 1.0
) -> tuple[float, float]:
    """Mean and root mean square of ‖z‖ over particles and late steps."""
    positions = walk(run, 4, stepper, start, num_steps, lambda step: radius)
    squares = np.array([(at**2).sum(axis=1) for at in islice(positions, burn, None)])
    return float(np.sqrt(squares).mean()), math.sqrt(float(squares.mean()))


def _scale_spread(run: Run) -> float:
    """Relative spread of ‖z‖/(r_sε) over a 16x range of r_s and an 8x range of ε."""
    found = []
    for step_radius in (0.3, 1.0, 4.8):
        for temperature in (0.2, 1.6):
            length = step_radius * temperature
            bowl = saturated(np.full(4, 2.0), 30 * temperature)
            start = 0.6 * length * unit_vectors(run.rng(40), 50, 4)
            found.append(_amplitudes(run, bowl, start, 120, 30, length)[0] / length)
    return max(found) / min(found) - 1


@check("G4", "stable-schedules", "M")
def stationary_amplitude(run: Run) -> Evidence:
    """The stationary excursion is r_sε/(2m_d), at every scale."""
    sizes = {2: (200, 600), 4: (200, 600), 8: (100, 500)} if run.quick else {}
    bowls = {d: saturated(np.full(d, 2.0), 10.0) for d in (2, 4, 8)}
    found = {}
    for d, bowl in bowls.items():
        num, num_steps = sizes.get(d, (400, 1500))
        start = 0.6 * unit_vectors(run.rng(4, d), num, d)
        found[d] = _amplitudes(run, bowl, start, num_steps, num_steps // 5)
    measured = {f"mean, d = {d}": found[d][0] for d in found}
    measured |= {"RMS, d = 4": found[4][1], "spread over scales": _scale_spread(run)}
    expected = {f"mean, d = {d}": 1 / (2 * best_axis_overlap(d)) for d in found}
    expected |= {"RMS, d = 4": 0.652, "spread over scales": 0.0}
    tols = {name: 0.01 * value for name, value in expected.items()} | {"spread over scales": 0.008}

    signs = run.rng(41).choice([-1.0, 1.0], (600, 200, 1))
    start = 0.6 * unit_vectors(run.rng(4, 4), 200, 4)
    lost = walk(run, 4, bowls[4], start, 600, lambda step: np.asarray(signs[step]))
    stray = np.array([(at**2).sum(axis=1) for at in islice(lost, 120, None)])
    control = {
        "mean, d = 4": float(np.sqrt(stray).mean()),
        "RMS, d = 4": math.sqrt(float(stray.mean())),
    }
    return Evidence(
        measured=measured,
        expected=expected,
        tol=0.01,
        ok=within(expected, tols),
        controls={"steps of random sign": measured | control},
        paper={"RMS, d = 4": 0.650, "spread over scales": 0.008},
        paper_tol=0.008,
        note=(
            "The printed amplitude 0.650 is a root mean square; the mean is 1/(2m_4) = 0.6418, "
            "by the balance of E‖z‖². The printed spread of 0.8 % is an upper bound."
        ),
    )


ANISOTROPIC = {  # our own values from 4e6 rotations; the last two from 300 chains
    "κ = 10": -0.3506, "κ = 100": -0.2799, "κ = 1000": -0.2715,
    "κ = 10, far": -0.3198, "κ = 100, far": -0.2589, "κ = 1000, far": -0.2514,
    "spike": -0.1456, "spike, far": -0.1304,
    "spike, z along ones": -0.1135, "spike, z along ones, far": -0.0945,
    "spike, RMS": 1.84, "spike, mean": 1.69,
}  # fmt: skip


def _anisotropic_drifts(run: Run) -> tuple[dict[str, float], float]:
    """Mean radial steps from unit excursions, by spectrum and probe distance; that of H = I."""
    num = 100_000 if run.quick else 400_000
    looks = directions(Orthoplex(4), rotations(run.seed, num, 4, 5))
    anywhere, diagonal = unit_vectors(run.rng(5), num, 4), np.full((num, 4), 0.5)

    def drift(curvature: Array, distance: float, at: Array) -> float:
        return float(radial(saturated(curvature, distance).move(at, looks), at).mean())

    found = {}
    for suffix, distance in (("", 10.0), (", far", 1e4)):
        for k in (10, 100, 1000):
            found[f"κ = {k}{suffix}"] = drift(np.linspace(1.0, k, 4), distance, anywhere)
        found[f"spike{suffix}"] = drift(SPIKE, distance, anywhere)
        found[f"spike, z along ones{suffix}"] = drift(SPIKE, distance, diagonal)
    return found, drift(np.ones(4), 10.0, anywhere)


@check("G5", "stable-schedules", "M")
def anisotropic_drift(run: Run) -> Evidence:
    """Conditioning weakens the inward drift, then leaves it alone."""
    chains, num_steps, wide = (100, 2000, 0.06) if run.quick else (300, 4000, 0.03)
    start = 1.7 * unit_vectors(run.rng(50), chains, 4)
    mean, rms = _amplitudes(run, saturated(SPIKE, 10.0), start, num_steps, 300)
    drifts, isotropic = _anisotropic_drifts(run)
    measured = drifts | {"spike, RMS": rms, "spike, mean": mean}
    amplitudes = {"spike, RMS": wide, "spike, mean": wide}
    return Evidence(
        measured=measured,
        expected=ANISOTROPIC,
        tol=0.006,
        ok=within(ANISOTROPIC, dict.fromkeys(ANISOTROPIC, 0.006) | amplitudes),
        controls={"H = I": measured | {"κ = 10": isotropic}},
        paper={
            "κ = 10": -0.350, "κ = 100": -0.272, "κ = 1000": -0.278,
            "spike, z along ones": -0.10, "spike, RMS": 1.84,
        },
        paper_tol=dict.fromkeys(ANISOTROPIC, 0.015) | amplitudes,
        note=(
            "The printed -0.272 and -0.278 are out of order by noise: the sequence is monotone. "
            "The paper does not state the direction of z for any of them."
        ),
    )  # fmt: skip


def _energy_drifts(run: Run, sign: float) -> dict[str, float]:
    """E[ΔV_H] on an isotropic bowl, and how far it is below the two bounds on any."""
    num = 40_000
    looks = directions(Orthoplex(4), rotations(run.seed, num, 4, 9))
    found, slack, sharp = {}, [], []
    for curvature in (np.ones(4), np.linspace(1.0, 9.0, 4), SPIKE):
        for distance in (0.01, 0.1, 1.0, 5.0):
            at = np.full((num, 4), 0.5 * distance)
            step = sign * saturated(curvature, 50.0).move(at, looks)
            change = float((curvature * ((at + step) ** 2 - at**2)).sum(axis=1).mean())
            pull = float(np.abs((curvature * at * step).sum(axis=1)).mean())
            slack.append(float(curvature.max()) - change)
            sharp.append(float(curvature.max()) - 2 * pull - change)
            if curvature.max() == 1.0:
                found[f"H = I, ‖z‖ = {distance:g}"] = change
    return found | {"slack": min(slack), "slack with the pull": min(sharp)}


def _tail_excess(run: Run, sign: float) -> float:
    """The largest excess of the realised tail of sup V_H over its bound, for two bowls."""
    num, num_steps = 60 if run.quick else 400, 1500
    bowls = np.repeat([np.ones(4), np.linspace(1.0, 9.0, 4)], num, axis=0)
    stepper = Stepper(quadratic(bowls[:, None, None]), saturated(np.ones(4), 50.0).reach)
    start = np.full((2 * num, 4), 0.5)
    highest = (bowls * start**2).sum(axis=1)
    for at in walk(run, 9, stepper, start, num_steps, lambda t: sign * DECAY(t), copies=2):
        highest = np.maximum(highest, (bowls * at**2).sum(axis=1))
    radii = np.array([DECAY(step) for step in range(num_steps)])
    excess: list[float] = []
    for tops, bowl in zip(np.split(highest, 2), (bowls[0], bowls[-1]), strict=True):
        first = float((bowl * 0.25).sum() + bowl.max() * (radii**2).sum())
        levels = first * np.geomspace(1.0, 10.0, 8)
        excess += [float((tops >= level).mean()) - first / level for level in levels]
    return max(excess)


@check("G9", "confinement-ville", "M")
def confinement(run: Run) -> Evidence:
    """The energy drifts down outside a ball; its tail is below Ville's."""
    overlap = best_axis_overlap(4)
    distances = {f"H = I, ‖z‖ = {distance:g}": distance for distance in (0.01, 0.1, 1.0, 5.0)}
    expected = {name: 1 - 2 * overlap * distance for name, distance in distances.items()}
    # ΔV = 1 − 2‖z‖·(largest overlap), whose standard deviation is 0.102.
    tols = {name: 4 * 2 * r * 0.102 / math.sqrt(40_000) for name, r in distances.items()}

    def facts(sign: float) -> dict[str, float]:
        return _energy_drifts(run, sign) | {"tail excess": _tail_excess(run, sign)}

    return Evidence(
        measured=facts(1.0),
        expected=expected,
        tol=max(tols.values()),
        ok=lambda v: (
            within(expected, tols)(v)
            and v["slack"] >= 0
            and v["slack with the pull"] >= -1e-9
            and v["tail excess"] <= 0
        ),
        controls={"outward steps": facts(-1.0)},
        note="Realised tails are far below the bound, so the drifts carry the discrimination.",
    )


def _block_excursions(
    run: Run, curvature: Array, dim: int, radius: Radius = lambda step: 1.0
) -> dict[str, float]:
    """Late excursion of d/4 blocks on one loss: mean per block, and of the whole vector."""
    blocks = dim // 4
    repeats = max(1, 1000 // blocks)
    start = 0.6 * unit_vectors(run.rng(10, dim), repeats * blocks, 4)

    def joint(points: Array) -> Array:  # a block's cost is the loss of all of them
        own = quadratic(curvature)(points)
        return np.asarray(own + own.mean() * (blocks - 1))

    stepper = Stepper(joint, saturated(curvature, 10.0).reach)
    late = islice(walk(run, 10, stepper, start, 60, radius), 20, None)
    norms = np.array([np.linalg.norm(at, axis=1) for at in late])
    whole = np.sqrt((norms.reshape(40, repeats, blocks) ** 2).sum(axis=2))
    return {"block": float(norms.mean()), "whole": float(whole.mean())}


@check("G10", "fragility", "M")
def dimension_flatness(run: Run) -> Evidence:
    """The excursion of a block does not depend on their number."""
    dims = (100, 1000, 10_000) if run.quick else (100, 1000, 10_000, 100_000)
    round_bowl, narrow = np.full(4, 2.0), np.linspace(1.0, 30.0, 4)
    found = {d: _block_excursions(run, round_bowl, d) for d in dims}
    other = {d: _block_excursions(run, narrow, d) for d in dims}
    decayed = _block_excursions(run, round_bowl, dims[0], DECAY)
    measured = {
        "slope": slope(dims, [found[d]["block"] for d in dims]),
        "slope, H = diag(1 … 30)": slope(dims, [other[d]["block"] for d in dims]),
        "excursion": found[dims[-1]]["block"],
        "decayed / flat": decayed["block"] / found[dims[0]]["block"],
    }
    expected = {
        "slope": 0.0,
        "slope, H = diag(1 … 30)": 0.0,
        "excursion": 1 / (2 * best_axis_overlap(4)),
    }
    tols = {"slope": 0.002, "slope, H = diag(1 … 30)": 0.004, "excursion": 0.005}
    whole = slope(dims, [found[d]["whole"] for d in dims])
    return Evidence(
        measured=measured,
        expected=expected,
        tol=0.002,
        ok=lambda v: within(expected, tols)(v) and v["decayed / flat"] <= 0.25,
        controls={"the vector of all blocks": measured | {"slope": whole}},
        paper={"slope": 0.0003},
        paper_tol=0.002,
    )
