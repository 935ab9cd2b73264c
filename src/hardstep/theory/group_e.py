"""Group E: the bias floor and the best probe radius (Theorem piecewise-smooth, Cor. optimal-rp).

The floor has a share of saturated rows, σ̄/c² with c = r_p/(2d): over walls at distance ℓ the
probes straddle one in a share M·r_pε/ℓ of the base points, M the mean overlap of the best vertex
with the wall's normal, so that share of the floor falls as ε/r_p.
"""

import math
from collections.abc import Callable

import numpy as np

from hardstep.geometry import Orthoplex, Polytope, Simplex
from hardstep.optim.quantities import optimal_probe_multiple, step_constant
from hardstep.theory.group_a import ball_smoothed
from hardstep.theory.primitives import (
    Array,
    ball_density,
    best_axis_overlap,
    best_triangle_overlap,
    directions,
    maximise,
    midpoints,
    quadrature,
    slope,
    turns,
    within,
)
from hardstep.theory.suite import Evidence, Run, Values, check

FRAMES: dict[str, Polytope] = {"orthoplex": Orthoplex(2), "simplex": Simplex(2)}
OVERLAPS = {"orthoplex": best_axis_overlap(2), "simplex": best_triangle_overlap()}


def _wave_curvature(x: Array, radius: float) -> Array:
    """The second derivative of sin(x + ½) averaged over a ball in R⁴."""
    cosine, weights = quadrature(-1.0, 1.0)
    damping = float(weights @ (np.cos(radius * cosine) * ball_density(cosine, 4)))
    return -np.sin(x + 0.5) * damping


def _step_curvature(x: Array, radius: float) -> Array:
    t = x / radius
    return np.asarray(-8 / math.pi * t * np.sqrt(np.clip(1 - t**2, 0, None)) / radius**2)


@check("E1", "piecewise-smooth", "Q")
def two_constants(run: Run) -> Evidence:
    """The smoothed loss bends as 4/(πh²), its smooth part as if there were no wall."""
    del run
    radii = (0.4, 0.2, 0.1, 0.05, 0.025)

    def bends(jump: float) -> Values:
        values = {}
        for radius in radii:
            x = np.linspace(-1.5 * radius, 1.5 * radius, 3001)
            smooth = ball_smoothed(lambda y: np.sin(y + 0.5), x, radius)[1]
            whole = ball_smoothed(
                lambda y: np.where(y > 0, jump, 0.0) + np.sin(y + 0.5), x, radius
            )[1]
            values[f"whole, h = {radius:g}"] = float(np.abs(whole).max())
            values[f"smooth part, h = {radius:g}"] = float(np.abs(smooth).max())
        return values

    expected = {}
    for radius in radii:
        x = np.linspace(-1.5 * radius, 1.5 * radius, 3001)
        smooth = _wave_curvature(x, radius)
        whole = np.abs(smooth + _step_curvature(x, radius)).max()
        expected[f"whole, h = {radius:g}"] = float(whole)
        expected[f"smooth part, h = {radius:g}"] = float(np.abs(smooth).max())
    tols = {name: 1e-3 * value for name, value in expected.items()}
    return Evidence(
        bends(1.0), expected, 1e-3, within(expected, tols), {"no jump": bends(0.0)},
        paper={"whole, h = 0.4": 9.0, "whole, h = 0.025": 2002.0},
        paper_tol={"whole, h = 0.4": 0.5, "whole, h = 0.025": 40.0},
        note="The paper names no loss; a unit step plus sin(x + 1/2) reproduces its 9 to 2,002.",
    )  # fmt: skip


def _straddles(frame: Polytope, multiple: float, temperature: float, spacing: float) -> float:
    """How often, over base points, a probe is across a wall from another one."""
    radius = multiple * temperature / 2
    band = min(radius, spacing / 2)  # farther from a wall no probe reaches it
    looks = directions(frame, turns(720))[:, :, 0]
    base = midpoints(-band, band, 400)[:, None, None]
    cells = np.floor((base + radius * looks) / spacing)
    return float((np.ptp(cells, axis=2) > 0).mean()) * 2 * band / spacing


@check("E2", "piecewise-smooth", "X")
def straddle_frequency(run: Run) -> Evidence:
    """Probes straddle a wall in proportion to r_pε; the floor's share goes as ε/r_p."""
    del run
    temperatures = [0.0125 * 2**j for j in range(5)]
    multiples = [0.25, 0.5, 1.0]

    def frequencies(spacing: float) -> Values:
        values = {kind: _straddles(frame, 0.25, 0.1, spacing) for kind, frame in FRAMES.items()}
        by_heat = [_straddles(FRAMES["simplex"], 0.25, heat, spacing) for heat in temperatures]
        by_reach = [_straddles(FRAMES["simplex"], m, 0.1, spacing) for m in multiples]
        floors = [f / step_constant(m, 2) ** 2 for f, m in zip(by_reach, multiples, strict=True)]
        warm = [f / step_constant(0.25, 2) ** 2 for f in by_heat]
        ratios = [f / (m * 0.1 / spacing) for f, m in zip(by_reach, multiples, strict=True)]
        return values | {
            "order in ε": slope(temperatures, by_heat),
            "order in r_p": slope(multiples, by_reach),
            "floor, order in ε": slope(temperatures, warm),
            "floor, order in r_p": slope(multiples, floors),
            "ratio to r_pε/(2L), spread": max(ratios) / min(ratios),
        }

    expected = {kind: 0.25 * 0.1 * OVERLAPS[kind] for kind in FRAMES}
    tols = {kind: 1e-3 * expected[kind] for kind in FRAMES}
    expected |= {"order in ε": 1.0, "order in r_p": 1.0, "floor, order in r_p": -1.0}
    expected |= {"floor, order in ε": 1.0, "ratio to r_pε/(2L), spread": 1.0}
    tols = {name: tols.get(name, 1e-3) for name in expected}
    return Evidence(
        frequencies(1.0), expected, 1e-3, within(expected, tols),
        {"walls closer than the probes reach": frequencies(0.02)},
        paper={"order in ε": 1.00, "floor, order in ε": 1.00, "ratio to r_pε/(2L), spread": 1.05},
        paper_tol=0.051,
        note="The paper's normaliser has r_s where only r_p makes the ratio constant: a misprint.",
    )  # fmt: skip


Floor = Callable[[Array, float | Array], Array]  # the bound of r_p and ε


def _bound(first_power: int) -> Floor:
    """r^n + ε/r + r⁴ε⁴: linearisation, saturation and coupling, with all constants one."""
    return lambda r, heat: r**first_power + heat / r + (r * heat) ** 4


def _best_radius(floor: Floor, temperature: float) -> tuple[float, float]:
    """Where the bound is least, by golden section in log r_p, and its value there."""
    where, top = maximise(lambda t: -floor(np.exp(t), temperature), -12.0, 4.0)
    return math.exp(where), -top


def _radius_orders(floor: Floor, temperatures: Array) -> tuple[float, float]:
    best = [_best_radius(floor, float(heat)) for heat in temperatures]
    return slope(temperatures, [r for r, _ in best]), slope(temperatures, [b for _, b in best])


def _exchange_rate(radii: Array, temperatures: Array) -> float:
    """The exponent of the iterations in the floor they reach: S_T ∝ 1/(cεB), T ∝ S_T²."""
    floors = _bound(4)(radii, temperatures)
    constants = np.array([step_constant(float(r), 2) for r in radii])
    return slope(floors, (constants * temperatures * floors) ** -2.0)


@check("E3", "optimal-rp", "X")
def optimal_radius(run: Run) -> Evidence:
    """The floor's bound is least at r_p ∝ ε^(1/5), where it is ∝ ε^(4/5)."""
    del run
    cold, hot = np.logspace(-8, -4, 9), np.logspace(3, 6, 9)
    closed = [optimal_probe_multiple(1.0, 1.0, 1.0, float(heat)) for heat in (*cold, *hot)]
    found = [_best_radius(_bound(4), float(heat))[0] for heat in (*cold, *hot)]
    small, large = _radius_orders(_bound(4), cold), _radius_orders(_bound(4), hot)
    fixed = _exchange_rate(np.full_like(cold, 1e-4), cold)
    retuned = _exchange_rate(np.array(found[: len(cold)]), cold)

    def orders(first_power: int) -> Values:
        square = _radius_orders(_bound(first_power), cold)
        return {
            "closed form, off by": float(np.abs(np.array(found) / closed - 1).max()),
            "radius, small ε": small[0], "floor, small ε": small[1],
            "radius, large ε": large[0], "floor, large ε": large[1],
            "radius, quadratic term": square[0], "floor, quadratic term": square[1],
            "iterations at fixed r_p": fixed, "iterations at the best r_p": retuned,
        }  # fmt: skip

    expected = {
        "closed form, off by": 0.0,
        "radius, small ε": 1 / 5, "floor, small ε": 4 / 5,
        "radius, large ε": -3 / 5, "floor, large ε": 8 / 5,
        "radius, quadratic term": 1 / 3, "floor, quadratic term": 2 / 3,
        "iterations at fixed r_p": -4.0, "iterations at the best r_p": -5.0,
    }  # fmt: skip
    tols = dict.fromkeys(expected, 1e-3) | {"closed form, off by": 1e-6}
    return Evidence(
        orders(2), expected, 1e-3, within(expected, tols),
        {"1/3 asked of the quartic term": orders(4)},
        paper={n: expected[n] for n in expected if n != "closed form, off by"}, paper_tol=1e-3,
    )  # fmt: skip
