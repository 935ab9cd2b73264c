"""Theorem piecewise-smooth: the bias floor, and how often probes straddle a wall.

The floor has a share of saturated rows, σ̄/c² with c = r_p/(2d): over walls at distance ℓ the
probes straddle one in a share M·r_pε/ℓ of the base points, M the mean overlap of the best vertex
with the wall's normal, so that share of the floor falls as ε/r_p. In E4 a staircase of walls ten
temperatures high saturates every row that straddles one, and the floor is F = mean over base
points of (‖e‖/c)², e being the remainder of the softmax over all rotations.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hardstep.geometry import Polytope
from hardstep.optim.quantities import step_constant
from hardstep.theory.numerics import Array, Function, midpoints, quadrature, slope
from hardstep.theory.smoothing_blowup import smooth_over_ball
from hardstep.theory.spheres import ball_density, best_axis_overlap, best_triangle_overlap
from hardstep.theory.steps import Loss, directions, frames, softmax_steps, turns
from hardstep.theory.suite import Evidence, Setup, Values, check

FRAMES = frames(2)
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
def two_constants(_: Setup) -> Evidence:
    """The smoothed loss bends as 4/(πh²), its smooth part as if there were no wall."""
    grids = {h: np.linspace(-1.5 * h, 1.5 * h, 3001) for h in (0.4, 0.2, 0.1, 0.05, 0.025)}

    def largest(bends: Callable[[Array, float], Sequence[Array]]) -> Values:
        values: dict[str, float] = {}
        for h, x in grids.items():
            whole, smooth = (float(np.abs(bend).max()) for bend in bends(x, h))
            values |= {f"whole, h = {h:g}": whole, f"smooth part, h = {h:g}": smooth}
        return values

    def exact(x: Array, h: float) -> tuple[Array, Array]:
        smooth = _wave_curvature(x, h)
        return smooth + _step_curvature(x, h), smooth

    def wave(y: Array) -> Array:
        return np.sin(y + 0.5)

    def integrated(jump: float) -> Values:
        losses: tuple[Function, ...] = (lambda y: np.where(y > 0, jump, 0.0) + wave(y), wave)
        return largest(lambda x, h: [smooth_over_ball(loss, x, h)[1] for loss in losses])

    expected = largest(exact)
    tols = {name: 1e-3 * value for name, value in expected.items()}
    return Evidence(
        integrated(1.0), expected, 1e-3, {"no jump": integrated(0.0)}, tols=tols,
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
def straddle_frequency(_: Setup) -> Evidence:
    """Probes straddle a wall in proportion to r_pε; the floor's share goes as ε/r_p."""
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
    return Evidence(
        frequencies(1.0), expected, 1e-3, {"walls closer than the probes reach": frequencies(0.02)},
        tols=tols,
        paper={"order in ε": 1.00, "floor, order in ε": 1.00, "ratio to r_pε/(2L), spread": 1.05},
        paper_tol=0.051,
        note="The paper's normalizer has r_s where only r_p makes the ratio constant: a misprint.",
    )  # fmt: skip


TEMPERATURE = 0.1
MULTIPLES = [0.25, 0.5, 1.0, 2.0, 4.0]
NUM_BAND, NUM_REST, NUM_ANGLES = 100, 50, 720


def _stairs(points: Array) -> Array:
    return np.asarray(10 * TEMPERATURE * np.floor(points[..., 0]))


def _waves(points: Array) -> Array:
    x, y = points[..., 0], points[..., 1]
    return np.asarray(0.3 * np.sin(2 * x + 0.3) + 0.15 * np.cos(1.5 * y))


def _waves_and_stairs(points: Array) -> Array:
    return _stairs(points) + _waves(points)


def _base_points(radius: float) -> tuple[Array, Array]:
    """One period, |x_1| < ½, stratified: the band that reaches the wall, the rest; weights."""
    rest = midpoints(radius, 0.5, NUM_REST // 2)
    x = np.concatenate([-rest, midpoints(-radius, radius, NUM_BAND), rest])
    share = np.where(np.abs(x) < radius, 2 * radius / NUM_BAND, (1 - 2 * radius) / NUM_REST)
    return np.stack([x, np.zeros_like(x)], axis=1), share


class _Floors(NamedTuple):
    """Over `MULTIPLES`."""

    floors: list[float]
    saturated: list[float]  # shares of the rows


def _floor_curve(loss: Loss, kind: str) -> _Floors:
    looks = directions(FRAMES[kind], turns(NUM_ANGLES))
    curve = _Floors([], [])
    for multiple in MULTIPLES:
        length = multiple * TEMPERATURE
        base, weights = _base_points(length / 2)
        tiled, repeated = np.tile(looks, (len(base), 1, 1)), np.repeat(base, NUM_ANGLES, 0)
        steps = softmax_steps(tiled, loss, repeated, length, TEMPERATURE)
        errors = steps.remainders(TEMPERATURE).reshape(len(base), NUM_ANGLES, 2).mean(axis=1)
        squares = (errors**2).sum(axis=1) / step_constant(multiple, 2) ** 2
        saturated = np.ptp(steps.costs, axis=1) > TEMPERATURE
        curve.floors.append(float(weights @ squares))
        curve.saturated.append(float(weights @ saturated.reshape(len(base), -1).mean(axis=1)))
    return curve


def _growth(values: list[float]) -> list[float]:
    return [after / max(before, 1e-300) for before, after in zip(values, values[1:], strict=False)]


@check("E4", "piecewise-smooth", "Q")
def saturated_floor(_: Setup) -> Evidence:
    """With saturated rows the floor falls as 1/r_p, without them it rises as r_p⁴."""
    smooth = {kind: _floor_curve(_waves, kind) for kind in FRAMES}

    def orders(walls: dict[str, _Floors], mixed: dict[str, _Floors]) -> Values:
        values: dict[str, float] = {}
        for kind in FRAMES:
            values |= {
                f"walls, {kind}": slope(MULTIPLES, walls[kind].floors),
                f"walls and waves, {kind}": slope(MULTIPLES, mixed[kind].floors),
                f"largest step up, {kind}": max(_growth(mixed[kind].floors)),
                f"least saturated, {kind}": min(mixed[kind].saturated),
                f"least growth of saturation, {kind}": min(_growth(mixed[kind].saturated)),
                f"waves, r_p ≤ ½, {kind}": slope(MULTIPLES[:2], smooth[kind].floors[:2]),
            }
        return values

    def falls_as_saturation_grows(values: Values) -> bool:
        return all(
            -1.05 <= values[f"walls and waves, {kind}"] <= -0.8
            and values[f"largest step up, {kind}"] < 1
            and values[f"least saturated, {kind}"] > 0
            and values[f"least growth of saturation, {kind}"] > 1
            for kind in FRAMES
        )

    walls = {kind: _floor_curve(_stairs, kind) for kind in FRAMES}
    mixed = {kind: _floor_curve(_waves_and_stairs, kind) for kind in FRAMES}
    expected = {f"walls, {kind}": -1.0 for kind in FRAMES}
    expected |= {f"waves, r_p ≤ ½, {kind}": 4.0 for kind in FRAMES}
    return Evidence(
        orders(walls, mixed), expected, 0.05, {"no walls": orders(smooth, smooth)},
        tols={f"walls, {kind}": 0.01 for kind in FRAMES}, also=falls_as_saturation_grows,
        paper={f"walls and waves, {kind}": -0.92 for kind in FRAMES}, paper_tol=0.13,
        note="The paper's -0.92 is for its own smooth part; the mechanism's exponent is -1.",
    )  # fmt: skip


def _square_over_mean(reach: Array, indicator: bool) -> float:
    """E[σ²]/E[σ] over uniform distances to a wall; σ is the share of rotations that reach it."""
    distance = midpoints(0.0, 1.0, 20_000)
    straddles = 1 - np.searchsorted(np.sort(reach), distance) / len(reach)
    straddles = (straddles > 0).astype(float) if indicator else straddles
    return float((straddles**2).sum() / straddles.sum())


@check("E7", "piecewise-smooth", "X")
def square_and_mean(setup: Setup) -> Evidence:
    """As a probability, not an indicator, straddling has a square below its mean."""
    looks = {kind: directions(frame, turns(200_000))[:, :, 0] for kind, frame in FRAMES.items()}
    weights, hits = setup.rng(1).random(1000), setup.rng(2).random(1000) < 0.3
    indicator = float((weights * hits.astype(float) ** 2).sum() / (weights * hits).sum())

    def ratios(as_indicator: bool) -> Values:
        found = {k: _square_over_mean(c.max(axis=1), as_indicator) for k, c in looks.items()}
        return found | {"indicator": indicator}

    def exact(vertices: int) -> float:
        angle, measure = quadrature(0.0, math.pi / vertices)
        flat = math.cos(math.pi / vertices)  # nearer than this every rotation reaches the wall
        share = vertices / math.pi * angle
        square = float(measure @ (share**2 * np.sin(angle)))
        return (flat + square) / (flat + float(measure @ (share * np.sin(angle))))

    expected = {"orthoplex": exact(4), "simplex": exact(3), "indicator": 1.0}
    return Evidence(
        ratios(False), expected, 1e-5, {"read as an indicator": ratios(True)},
        tols={"indicator": 1e-12}, paper={"indicator": 1.0}, paper_tol=5e-5,
        note="The paper's 0.92, at an unstated frame, lies between; that the gap widens as ε "
        "falls cannot hold in this model, which has no scale.",
    )  # fmt: skip
