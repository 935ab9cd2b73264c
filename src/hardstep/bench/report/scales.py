"""Where the ticks of an axis are, and what is written at them."""

import math
from collections.abc import Iterable
from typing import Any

ABOUT = 5  # ticks of an axis
ROOM = 0.04  # left free at both ends of a linear axis, as a share of its range


def linear(values: Iterable[float]) -> dict[str, Any]:
    """An axis that holds all values with some room."""
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    if low == high:
        low, high = low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10
    room = ROOM * (high - low)
    return _axis(low - room, high + room, linear_ticks(low - room, high + room))


def logarithmic(values: Iterable[float]) -> dict[str, Any]:
    """An axis that holds all positive values, from the smallest to the largest."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known), max(known)
    if low == high:
        low, high = low / 2, high * 2
    return _axis(low, high, log_ticks(low, high))


def linear_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about five of them."""
    rough = (high - low) / ABOUT
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(factor * power - rough))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times them between if few; linear ones on a short range."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**power for power in powers for m in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    decades = [tick for tick in ticks[::3] if low <= tick <= high]
    if len(decades) > 2:
        return decades[:: math.ceil(len(decades) / (ABOUT + 1))]
    return inside if len(inside) > 2 else [tick for tick in linear_ticks(low, high) if tick > 0]


def _axis(low: float, high: float, ticks: list[float]) -> dict[str, Any]:
    return {"low": low, "high": high, "ticks": [[tick, label(tick)] for tick in ticks]}


def label(tick: float) -> str:
    """Short: 0.05, 20, 5k, 2M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(tick) >= size:
            return f"{tick / size:g}{suffix}"
    return f"{tick:g}"
