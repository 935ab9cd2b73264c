"""Theorem smoothing-blowup: smoothing a loss blows up at an attained jump, by which power.

With the uniform ball of radius h in R⁴ a unit step has sup|∂L_h| = 8/(3πh) and
sup|∂²L_h| = 4/(πh²). For any density on [−h, h] and an isolated jump J between pieces of slope at
most G, the smoothed loss has slope at least J/(2h) − G and three-point bend at least J/(8h²).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardstep.theory.numerics import (
    Array,
    Curve,
    Curves,
    Function,
    farthest_each,
    maximize,
    midpoints,
    quadrature,
    slope,
)
from hardstep.theory.radii import RadiusLaw
from hardstep.theory.spheres import ball_cdf, ball_density, ball_points, equator_density
from hardstep.theory.suite import Evidence, Setup, Values, check


def _uneven_step(x: Array) -> Array:
    """A jump of one at 0 between waves: no homogeneity, so no exponent is forced by scaling."""
    return np.where(x > 0, 1 + 0.5 * np.sin(3 * x), 0.0) + 0.3 * np.cos(2 * x)


RADII = (1.0, 0.5, 0.25, 0.125, 0.0625)
LOSSES: dict[str, Function] = {
    "step": lambda x: np.where(x > 0, 1.0, 0.0),
    "uneven step": _uneven_step,
    "|x|, no jump": np.abs,
}
BALL = {"gradient": 8 / (3 * math.pi), "curvature": 4 / math.pi, "maximiser": math.sqrt(0.5)}


def _suprema(dim: int, radius: float) -> dict[str, float]:
    """Of a unit step smoothed over a ball, in units of the radius."""
    step = 1e-4 * radius
    peak = (dim - 1) * equator_density(dim + 2)

    def smoothed(x: Array) -> Array:
        return ball_cdf(x / radius, dim)

    def curvature(x: Array) -> Array:
        room = np.clip(1 - (x / radius) ** 2, 0, None)
        return np.asarray(peak * np.abs(x) * room ** ((dim - 3) / 2) / radius**3)

    def first(x: Array) -> Array:
        return np.asarray((smoothed(x + step) - smoothed(x - step)) / (2 * step))

    def second(x: Array) -> Array:
        bend = smoothed(x + step) - 2 * smoothed(x) + smoothed(x - step)
        return np.asarray(np.abs(bend) / step**2)

    _, steepest = maximize(lambda x: ball_density(x / radius, dim) / radius, 0.0, radius)
    where, sharpest = maximize(curvature, 0.0, radius)
    return {
        "gradient": steepest * radius,
        "curvature": sharpest * radius**2,
        "maximiser": where / radius,
        "gradient (differences)": maximize(first, 0.0, radius)[1] * radius,
        "curvature (differences)": maximize(second, 0.0, radius)[1] * radius**2,
    }


@check("A1", "smoothing-blowup", "X")
def ball_constants(_: Setup) -> Evidence:
    """A step smoothed over a ball in R⁴ has slope 8/(3πh) and curvature 4/(πh²)."""
    differences = {f"{name} (differences)": BALL[name] for name in ("gradient", "curvature")}
    expected = BALL | differences
    # A flat top is located to the root of the rounding.
    tols = dict.fromkeys(differences, 1e-6) | {"maximiser": 1e-7}

    def worst(dim: int) -> Values:
        return farthest_each([_suprema(dim, radius) for radius in RADII], expected)

    return Evidence(
        worst(4), expected, 1e-9, {"a ball in R³": worst(3)}, tols=tols,
        paper={"gradient": 0.8488, "curvature": 1.2732, "maximiser": 0.70},
        paper_tol={"gradient": 5e-5, "curvature": 5e-5, "maximiser": 0.01},
        note="The paper's estimates 0.836-0.841 and 1.253-1.263 are biased low by binning (A1-MC).",
    )  # fmt: skip


def _sample_constants(setup: Setup, num: int, dim: int) -> dict[str, float]:
    """Differences of a step's average over sampled balls, in units of the radius."""
    slopes, bends = [], []
    for index, radius in enumerate(RADII):
        across = np.sort(radius * ball_points(setup.rng(dim, index), num, dim)[:, 0])
        width = 0.1 * radius

        def level(x: float, across: Array = across) -> float:
            return 1 - float(np.searchsorted(across, -x)) / num

        slopes.append((level(width) - level(-width)) / (2 * width) * radius)
        for side in (-1, 1):
            x = side * radius * BALL["maximiser"]
            bend = level(x + width) - 2 * level(x) + level(x - width)
            bends.append(abs(bend) / width**2 * radius**2)
    return {"gradient": float(np.mean(slopes)), "curvature": float(np.mean(bends))}


@check("A1-MC", "smoothing-blowup", "M")
def sampled_ball_constants(setup: Setup) -> Evidence:
    """The same constants from sampled balls, fresh at every radius."""
    num = 400_000 if setup.quick else 1_000_000
    expected = {name: BALL[name] for name in ("gradient", "curvature")}
    # Two bins of width 0.1 hold a share 0.06 of the points; ten such differences are averaged.
    error = math.sqrt(0.06 / num) / 0.1**2 / math.sqrt(10)
    tols = {"gradient": 0.02 * 0.849, "curvature": max(0.02 * 1.273, 4 * error)}
    return Evidence(
        _sample_constants(setup, num, 4), expected, tols["curvature"],
        {"a ball in R³": _sample_constants(setup, num, 3)}, tols=tols,
        paper={"gradient": 0.8385, "curvature": 1.258},
        paper_tol={"gradient": 0.01, "curvature": tols["curvature"]},
        note="The paper prints 0.836-0.841 and 1.253-1.263; coarse bins lower both.",
    )  # fmt: skip


def smooth_over_ball(loss: Function, x: Array, radius: float) -> tuple[Array, Array]:
    """First two derivatives, at x, of a loss of one coordinate averaged over balls in R⁴.

    They fall on the kernel, so the loss may jump, at 0 only: the integral is split there.
    """
    peak = equator_density(6)  # the kernel is peak·(1 − s²)^(3/2)
    cut = np.clip(-x / radius, -1.0, 1.0)
    first, second = np.zeros_like(x), np.zeros_like(x)
    for low, high in ((-np.ones_like(x), cut), (cut, np.ones_like(x))):
        s, weights = quadrature(low, high, 100)
        root = np.sqrt(np.clip(1 - s**2, 1e-30, None))
        values = weights * loss(x[..., None] + radius * s) * 3 * peak
        first += (values * s * root).sum(axis=-1) / radius
        second += (values * (2 * s**2 - 1) / root).sum(axis=-1) / radius**2
    return first, second


def _exponents(sharp: Function, uneven: Function) -> dict[str, float]:
    """Slopes, in the radius, of the largest first and second derivative of two losses."""
    radii = [0.1 * 2.0**-j for j in range(5)]
    (first, second), (first_uneven, second_uneven) = (
        np.array([_largest(loss, radius) for radius in radii]).T for loss in (sharp, uneven)
    )
    temperatures = [0.05 * 2.0**-j for j in range(5)]
    reaches = [RadiusLaw(temperature, 1, 0.05).outer for temperature in temperatures]
    allowance = [
        _largest(uneven, reach)[1] * temperature**2
        for reach, temperature in zip(reaches, temperatures, strict=True)
    ]
    return {
        "gradient, step": slope(radii, first),
        "curvature, step": slope(radii, second),
        "gradient, uneven": slope(radii, first_uneven),
        "curvature, uneven": slope(radii, second_uneven),
        "curvature × squared step": slope(temperatures, allowance),
    }


def _largest(loss: Function, radius: float, num: int = 801) -> tuple[float, float]:
    first, second = smooth_over_ball(loss, np.linspace(-2 * radius, 2 * radius, num), radius)
    return float(np.abs(first).max()), float(np.abs(second).max())


@check("A2", "smoothing-blowup", "Q")
def unforced_exponents(_: Setup) -> Evidence:
    """Slope h⁻¹ and curvature h⁻² also where no homogeneity forces them."""
    expected = {
        "gradient, step": -1.0, "curvature, step": -2.0,
        "gradient, uneven": -1.0, "curvature, uneven": -2.0,
        "curvature × squared step": 0.0, "kink constant": 16 / (3 * math.pi),
    }  # fmt: skip
    tols = {"gradient, step": 1e-9, "curvature, step": 1e-9, "kink constant": 1e-6}
    kink = {"kink constant": _largest(np.abs, 0.1)[1] * 0.1}
    measured = _exponents(LOSSES["step"], LOSSES["uneven step"]) | kink
    return Evidence(
        measured, expected, 0.05, {"|x|, which has no jump": _exponents(np.abs, np.abs) | kink},
        tols=tols, paper={n: expected[n] for n in expected if "uneven" in n or "squared" in n},
        paper_tol=0.05,
        note="The waves' share of the slope fades with h, so the uneven exponents tend to -1, -2.",
    )  # fmt: skip


@dataclass(frozen=True)
class _Kernel:
    """A density on [−radius, radius] and its distribution function."""

    radius: float
    density: Function
    cdf: Function


def _histogram(weights: Array, radius: float) -> _Kernel:
    edges = np.linspace(-radius, radius, len(weights) + 1)
    share = weights / weights.sum()
    heights = np.concatenate([[0.0], share / np.diff(edges), [0.0]])
    mass = np.concatenate([[0.0], np.cumsum(share)])
    return _Kernel(
        radius,
        lambda u: heights[np.searchsorted(edges, u, side="right")],
        lambda u: np.interp(u, edges, mass),
    )


def _raised_cosine(radius: float) -> _Kernel:
    def inside(u: Array) -> Array:
        return np.clip(u / radius, -1.0, 1.0)

    return _Kernel(
        radius,
        lambda u: (1 + np.cos(math.pi * inside(u))) / (2 * radius),
        lambda u: (1 + inside(u) + np.sin(math.pi * inside(u)) / math.pi) / 2,
    )


Walls = Sequence[tuple[float, float]]  # positions and heights of jumps


def _smooth(walls: Walls, kernel: _Kernel, x: Array) -> Array:
    steps = [height * (1 - kernel.cdf(position - x)) for position, height in walls]
    return np.asarray(sum(steps, np.zeros_like(x)))


def _floors(walls: Walls, kernel: _Kernel, tilt: float = 0.0) -> tuple[float, float]:
    """Largest slope and bend at (±h, h), over J/(2h) and J/(8h²); the loss falls by `tilt`."""
    h = kernel.radius
    x = midpoints(-2 * h, 2 * h, 4000)
    slopes = sum((height * kernel.density(position - x) for position, height in walls), -tilt)
    values = _smooth(walls, kernel, h * np.arange(-2.0, 3.0))
    bends = np.abs(np.diff(values, 2))[[0, 2]]
    return float(np.abs(slopes).max()) * 2 * h, float(bends.max()) * 8


def _pointwise_bend(kernel: _Kernel, rng: np.random.Generator) -> float:
    """The bend of a smoothed unit step as a derivative at single points, over J/(8h²)."""
    x = kernel.radius * rng.uniform(-0.9, 0.9, 50)
    step = 1e-5 * kernel.radius
    at = [_smooth([(0.0, 1.0)], kernel, x + shift) for shift in (-step, 0.0, step)]
    return float(np.abs(at[0] - 2 * at[1] + at[2]).max()) / step**2 * 8 * kernel.radius**2


@check("A3", "smoothing-blowup", "X")
def kernel_free_floors(setup: Setup) -> Evidence:
    """No kernel on [−h, h] smooths a jump below slope J/(2h) or bend J/(8h²)."""
    rng, unit, h = setup.rng(), [(0.0, 1.0)], 0.25
    weights = rng.exponential(size=(20, 50))
    weights[:5, :25], weights[5:10, 25:] = 0.0, 0.0  # one-sided kernels
    weights[-1] = 1.0  # the uniform one, for which the floor is tight
    floors = [_floors(unit, _histogram(row, h)) for row in weights]
    tilts = [(0.5, 0.4), (0.5, 0.2), (0.25, 0.5)]  # h and G, h ≤ J/(4G)
    spare = [
        _floors(unit, _histogram(row, radius), tilt)[0] - (1 - 2 * radius * tilt)
        for radius, tilt in tilts
        for row in weights
    ]
    uniform = _histogram(weights[-1], h)
    measured = {
        "uniform kernel": _floors(unit, uniform)[0],
        "least slope": min(slope for slope, _ in floors),
        "least bend": min(bend for _, bend in floors),
        "spare slope on a tilt": min(spare),
    }

    def above_floors(values: Values) -> bool:
        floor = min(values["least slope"], values["least bend"]) >= 1 - 1e-12
        return floor and values["spare slope on a tilt"] >= -1e-12

    def unisolated(width: float) -> Values:
        least = _floors([(0.0, 1.0), (width, -1.0)], _raised_cosine(0.5))
        return measured | {"least slope": least[0], "least bend": least[1]}

    return Evidence(
        measured, {"uniform kernel": 1.0}, 1e-12,
        {
            "a second wall at 0.001": unisolated(0.001),
            "a single point": unisolated(0.0),
            "bend at points": measured | {"least bend": _pointwise_bend(uniform, setup.rng(1))},
        },
        also=above_floors,
        note="In units of J/(2h) and J/(8h²), the floors of the theorem.",
    )  # fmt: skip


def tabulate_blow_up() -> tuple[Curves, Curves]:
    """The largest gradient and curvature over the ball's radius h, by loss (A2)."""
    radii = 0.1 * 2.0 ** -np.arange(6.0)[::-1]
    gradients, curvatures = {}, {}
    for name, loss in LOSSES.items():
        first, second = np.array([_largest(loss, radius, 401) for radius in radii]).T
        gradients[name], curvatures[name] = Curve(radii, first), Curve(radii, second)
    return gradients, curvatures
