"""Group A: the floors under slope and bend that hold for every kernel (Theorem smoothing-blowup).

For any density on [−h, h] and an isolated jump J between pieces of slope at most G, the smoothed
loss has slope at least J/(2h) − G and three-point bend at least J/(8h²).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardstep.theory.primitives import Array, Function, midpoints
from hardstep.theory.suite import Evidence, Run, Values, check


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


def _smoothed(walls: Walls, kernel: _Kernel, x: Array) -> Array:
    steps = [height * (1 - kernel.cdf(position - x)) for position, height in walls]
    return np.asarray(sum(steps, np.zeros_like(x)))


def _floors(walls: Walls, kernel: _Kernel, tilt: float = 0.0) -> tuple[float, float]:
    """Largest slope and bend at (±h, h), over J/(2h) and J/(8h²); the loss falls by `tilt`."""
    h = kernel.radius
    x = midpoints(-2 * h, 2 * h, 4000)
    slopes = sum((height * kernel.density(position - x) for position, height in walls), -tilt)
    values = _smoothed(walls, kernel, h * np.arange(-2.0, 3.0))
    bends = np.abs(np.diff(values, 2))[[0, 2]]
    return float(np.abs(slopes).max()) * 2 * h, float(bends.max()) * 8


def _pointwise_bend(kernel: _Kernel, rng: np.random.Generator) -> float:
    """The bend of a smoothed unit step as a derivative at single points, over J/(8h²)."""
    x = kernel.radius * rng.uniform(-0.9, 0.9, 50)
    step = 1e-5 * kernel.radius
    at = [_smoothed([(0.0, 1.0)], kernel, x + shift) for shift in (-step, 0.0, step)]
    return float(np.abs(at[0] - 2 * at[1] + at[2]).max()) / step**2 * 8 * kernel.radius**2


@check("A3", "smoothing-blowup", "X")
def kernel_free_floors(run: Run) -> Evidence:
    """No kernel on [−h, h] smooths a jump below slope J/(2h) or bend J/(8h²)."""
    rng, unit, h = run.rng(), [(0.0, 1.0)], 0.25
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

    def ok(values: Values) -> bool:
        tight = abs(values["uniform kernel"] - 1) <= 1e-12
        floor = min(values["least slope"], values["least bend"]) >= 1 - 1e-12
        return tight and floor and values["spare slope on a tilt"] >= -1e-12

    def unisolated(width: float) -> Values:
        least = _floors([(0.0, 1.0), (width, -1.0)], _raised_cosine(0.5))
        return measured | {"least slope": least[0], "least bend": least[1]}

    return Evidence(
        measured, {"uniform kernel": 1.0}, 1e-12, ok,
        {
            "a second wall at 0.001": unisolated(0.001),
            "a single point": unisolated(0.0),
            "bend at points": measured | {"least bend": _pointwise_bend(uniform, run.rng(1))},
        },
        note="In units of J/(2h) and J/(8h²), the floors of the theorem.",
    )  # fmt: skip
