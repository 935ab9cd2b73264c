"""Numbers, quadrature, extrema and curves."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardstep.theory.suite import Values

Array = NDArray[np.float64]
Function = Callable[[Array], Array]  # of numbers, entry by entry
T = TypeVar("T", float, Array)


def farthest(values: Iterable[float], expected: float) -> float:
    """The value that differs most from what it should be."""
    return max((float(value) for value in values), key=lambda value: abs(value - expected))


def farthest_each(found: Sequence[Values], expected: Values) -> dict[str, float]:
    """Of every expected number, the measurement that differs most."""
    return {name: farthest((one[name] for one in found), expected[name]) for name in expected}


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """The exponent of y ∝ x^slope, by least squares in the logarithms."""
    return float(np.polyfit(np.log(np.asarray(x)), np.log(np.asarray(y)), 1)[0])


@lru_cache(maxsize=16)
def _unit_rule(num: int) -> tuple[Array, Array]:
    """Nodes and weights on (0, 1) for functions with half powers at the ends.

    Gauss–Legendre after x = 3t² − 2t³, whose zero slopes make √x and 1/√x smooth in t.
    """
    t, weights = np.polynomial.legendre.leggauss(num)
    t = (t + 1) / 2
    return t**2 * (3 - 2 * t), weights * 3 * t * (1 - t)


def quadrature(low: float | Array, high: float | Array, num: int = 400) -> tuple[Array, Array]:
    """Nodes and weights on (low, high), along a new last axis."""
    x, weights = _unit_rule(num)
    start, width = np.asarray(low)[..., None], np.asarray(high - low)[..., None]
    return start + width * x, width * weights


def midpoints(low: float, high: float, num: int) -> Array:
    """Midpoints of equal intervals; their mean is spectrally accurate on periodic functions."""
    return low + (high - low) * (np.arange(num) + 0.5) / num


def maximize(function: Function, low: float, high: float, num: int = 2001) -> tuple[float, float]:
    """Where a function is largest on an interval, and its value: grid, then golden section."""
    grid = np.linspace(low, high, num)
    best = int(np.argmax(function(grid)))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, num - 1)])
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        inner = np.array([right - ratio * (right - left), left + ratio * (right - left)])
        lower, upper = function(inner)
        left, right = (left, float(inner[1])) if lower >= upper else (float(inner[0]), right)
    candidates = np.array([grid[best], left, (left + right) / 2, right])
    values = function(candidates)
    top = int(np.argmax(values))
    return float(candidates[top]), float(values[top])


def derivative(function: Callable[[T], T], x: T, step: float) -> T:
    """Five-point central difference, exact on polynomials of degree four."""
    inner = function(x + step) - function(x - step)
    outer = function(x + 2 * step) - function(x - 2 * step)
    return (8 * inner - outer) / (12 * step)


@dataclass(frozen=True)
class Curve:
    """Values over an axis."""

    x: Array
    y: Array

    @property
    def order(self) -> float:
        """The exponent fitted over the whole range."""
        return slope(self.x, self.y)

    @property
    def last_order(self) -> float:
        """The exponent between the last two points."""
        return slope(self.x[-2:], self.y[-2:])


Curves = dict[str, Curve]


def tabulate(x: Array, function: Callable[[float], float]) -> Curve:
    """A function's values over an axis."""
    return Curve(x, np.array([function(float(value)) for value in x]))
