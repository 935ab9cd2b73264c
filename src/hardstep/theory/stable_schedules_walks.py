"""Stable schedules: how far a run strays from a minimum, and what keeps it there."""

import math
from itertools import islice

import numpy as np

from hardstep.geometry import Orthoplex
from hardstep.schedules import Constant, PowerDecay
from hardstep.theory.numerics import Array, Curve, Curves, slope, tabulate
from hardstep.theory.spheres import best_axis_overlap, unit_vectors
from hardstep.theory.steps import (
    Radius,
    Stepper,
    directions,
    greedy_stepper,
    mean_square,
    radial,
    rotations,
    walk,
)
from hardstep.theory.suite import Evidence, Setup, check

DECAY = PowerDecay(1.0, 0.6)  # the schedule of condition (v)
UNIT = Constant(1.0)
BOWL = greedy_stepper(np.full(4, 2.0), 1.0)
SPIKE = np.array([1.0, 1.0, 1.0, 100.0])


def _exponent(mean_squares: Array) -> float:
    """Growth of the root mean square over the last three quarters of the steps."""
    time = np.arange(1, len(mean_squares) + 1)
    late = len(mean_squares) // 4
    return slope(time[late:], np.sqrt(mean_squares[late:]))


def _mean_squares(
    setup: Setup, num_steps: int, num_free: int, num_held: int
) -> tuple[Array, Array, Array]:
    """Mean squared distances per step: of free walks, and of held ones, flat and decayed."""
    start = np.tile(0.6 * unit_vectors(setup.rng(20), num_held, 4), (2, 1))

    def radius(step: int) -> Array:  # the first half flat, the second decayed
        return np.repeat([[1.0], [DECAY(step)]], num_held, axis=0)

    positions = walk(setup, 2, BOWL, start, num_steps, radius, copies=2)
    held = np.array([(at**2).sum(axis=1).reshape(2, -1).mean(axis=1) for at in positions])
    return mean_square(setup, 2, num_free, 4, num_steps), held[:, 0], held[:, 1]


@check("G2", "stable-schedules", "M")
def excursion(setup: Setup) -> Evidence:
    """Without drift a walk grows like √t; with it, it follows the radius."""
    num_steps, num_free = 2500, 4000
    free, flat, decayed = _mean_squares(setup, num_steps, num_free, 24)
    measured = {
        "free": _exponent(free),
        "flat": _exponent(flat),
        "decayed": _exponent(decayed),
        "free, E‖z‖²/t": float(free[-1]) / num_steps,
    }
    expected = {"free": 0.5, "flat": 0.0, "decayed": -0.6, "free, E‖z‖²/t": 1.0}
    four_errors = 4 * math.sqrt(2 / 4 / num_free)  # ‖z‖²/t is χ²_4/4 in the limit
    tols = {"flat": 0.02, "decayed": 0.02, "free, E‖z‖²/t": four_errors}
    return Evidence(
        measured, expected, 0.03, {"no drift": measured | {"flat": measured["free"]}}, tols=tols,
        paper={"free": 0.507, "flat": 0.0, "decayed": -0.61},
        paper_tol={"free": 0.05, "flat": 0.02, "decayed": 0.02},
        note="Uniform weights on a centered frame do not move at all; the paper's free walk must "
        "mean a uniformly drawn vertex. With its twelve runs the exponent scatters by 0.05.",
    )  # fmt: skip


def _amplitudes(
    setup: Setup, stepper: Stepper, start: Array, num_steps: int, burn: int, radius: Radius = UNIT
) -> tuple[float, float]:
    """Mean and root mean square of ‖z‖ over particles and late steps."""
    positions = walk(setup, 4, stepper, start, num_steps, radius)
    squares = np.array([(at**2).sum(axis=1) for at in islice(positions, burn, None)])
    return float(np.sqrt(squares).mean()), math.sqrt(float(squares.mean()))


def _scale_spread(setup: Setup) -> float:
    """Relative spread of ‖z‖/(r_sε) over a 16x range of r_s and an 8x range of ε."""
    found = []
    for step_radius in (0.3, 1.0, 4.8):
        for temperature in (0.2, 1.6):
            length = step_radius * temperature
            bowl = greedy_stepper(np.full(4, 2.0), 30 * temperature)
            start = 0.6 * length * unit_vectors(setup.rng(40), 50, 4)
            mean, _ = _amplitudes(setup, bowl, start, 120, 30, Constant(length))
            found.append(mean / length)
    return max(found) / min(found) - 1


@check("G4", "stable-schedules", "M")
def stationary_amplitude(setup: Setup) -> Evidence:
    """The stationary excursion is r_sε/(2m_d), at every scale."""
    sizes = {2: (200, 600), 4: (200, 600), 8: (100, 500)} if setup.quick else {}
    bowls = {d: greedy_stepper(np.full(d, 2.0), 10.0) for d in (2, 4, 8)}
    found = {}
    for d, bowl in bowls.items():
        num, num_steps = sizes.get(d, (400, 1500))
        start = 0.6 * unit_vectors(setup.rng(4, d), num, d)
        found[d] = _amplitudes(setup, bowl, start, num_steps, num_steps // 5)
    measured = {f"mean, d = {d}": found[d][0] for d in found}
    measured |= {"RMS, d = 4": found[4][1], "spread over scales": _scale_spread(setup)}
    expected = {f"mean, d = {d}": 1 / (2 * best_axis_overlap(d)) for d in found}
    expected |= {"RMS, d = 4": 0.652, "spread over scales": 0.0}
    tols = {name: 0.01 * value for name, value in expected.items()} | {"spread over scales": 0.008}

    signs = setup.rng(41).choice([-1.0, 1.0], (600, 200, 1))
    start = 0.6 * unit_vectors(setup.rng(4, 4), 200, 4)
    mean, rms = _amplitudes(setup, bowls[4], start, 600, 120, lambda step: np.asarray(signs[step]))
    control = {"mean, d = 4": mean, "RMS, d = 4": rms}
    return Evidence(
        measured, expected, 0.01, {"steps of random sign": measured | control}, tols=tols,
        paper={"RMS, d = 4": 0.650, "spread over scales": 0.008}, paper_tol=0.008,
        note="The printed amplitude 0.650 is a root mean square; the mean is 1/(2m_4) = 0.6418, "
        "by the balance of E‖z‖². The printed spread of 0.8 % is an upper bound.",
    )  # fmt: skip


ANISOTROPIC = {  # our own values from 4e6 rotations; the last two from 300 chains
    "κ = 10": -0.3506, "κ = 100": -0.2799, "κ = 1000": -0.2715,
    "κ = 10, far": -0.3198, "κ = 100, far": -0.2589, "κ = 1000, far": -0.2514,
    "spike": -0.1456, "spike, far": -0.1304,
    "spike, z along ones": -0.1135, "spike, z along ones, far": -0.0945,
    "spike, RMS": 1.84, "spike, mean": 1.69,
}  # fmt: skip


def _anisotropic_drifts(setup: Setup) -> tuple[dict[str, float], float]:
    """Mean radial steps from unit excursions, by spectrum and probe distance; that of H = I."""
    num = 100_000 if setup.quick else 400_000
    looks = directions(Orthoplex(4), rotations(setup.seed, num, 4, 5))
    anywhere, diagonal = unit_vectors(setup.rng(5), num, 4), np.full((num, 4), 0.5)

    def drift(curvature: Array, distance: float, at: Array) -> float:
        return float(radial(greedy_stepper(curvature, distance).move(at, looks), at).mean())

    found = {}
    for suffix, distance in (("", 10.0), (", far", 1e4)):
        for k in (10, 100, 1000):
            found[f"κ = {k}{suffix}"] = drift(np.linspace(1.0, k, 4), distance, anywhere)
        found[f"spike{suffix}"] = drift(SPIKE, distance, anywhere)
        found[f"spike, z along ones{suffix}"] = drift(SPIKE, distance, diagonal)
    return found, drift(np.ones(4), 10.0, anywhere)


@check("G5", "stable-schedules", "M")
def anisotropic_drift(setup: Setup) -> Evidence:
    """Conditioning weakens the inward drift, then leaves it alone."""
    chains, num_steps, wide = (100, 2000, 0.06) if setup.quick else (300, 4000, 0.03)
    start = 1.7 * unit_vectors(setup.rng(50), chains, 4)
    mean, rms = _amplitudes(setup, greedy_stepper(SPIKE, 10.0), start, num_steps, 300)
    drifts, isotropic = _anisotropic_drifts(setup)
    measured = drifts | {"spike, RMS": rms, "spike, mean": mean}
    amplitudes = {"spike, RMS": wide, "spike, mean": wide}
    return Evidence(
        measured, ANISOTROPIC, 0.006, {"H = I": measured | {"κ = 10": isotropic}},
        tols=amplitudes,
        paper={
            "κ = 10": -0.350, "κ = 100": -0.272, "κ = 1000": -0.278,
            "spike, z along ones": -0.10, "spike, RMS": 1.84,
        },
        paper_tol=dict.fromkeys(ANISOTROPIC, 0.015) | amplitudes,
        note="The printed -0.272 and -0.278 are out of order by noise: the sequence is monotone. "
        "The paper does not state the direction of z for any of them.",
    )  # fmt: skip


def tabulate_excursions() -> Curves:
    """The root mean square distance from a minimum in R⁴ over the steps (G2)."""
    time, squares = np.arange(1.0, 1001), _mean_squares(Setup(), 1000, 2000, 100)
    names = ("free", "flat", "decayed")
    return {name: Curve(time, np.sqrt(found)) for name, found in zip(names, squares, strict=True)}


def tabulate_amplitudes() -> Curves:
    """The stationary mean distance from a minimum over the dimension (G4)."""
    dims = np.array([2.0, 3, 4, 6, 8])

    def simulated(dim: float) -> float:
        bowl = greedy_stepper(np.full(int(dim), 2.0), 10.0)
        start = 0.6 * unit_vectors(Setup().rng(4, int(dim)), 100, int(dim))
        return _amplitudes(Setup(), bowl, start, 300, 60)[0]

    def closed(dim: float) -> float:
        return 1 / (2 * best_axis_overlap(int(dim)))

    return {
        "simulated": tabulate(dims, simulated),
        "closed form": tabulate(np.arange(2.0, 9), closed),
    }
