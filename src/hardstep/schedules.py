"""Values that change with the step: any callable `step -> float`, or a plain number.

Radii carry their unit by name. The paper has two parameterizations of a radius, a physical
length and a multiple of the temperature; `Length` and `TimesTemperature` say which one is
meant, whether the value inside is constant or scheduled.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from hardstep._checks import (
    check_count,
    check_not_negative,
    check_number,
    check_positive,
    is_number,
    show,
)
from hardstep.errors import ConfigError

Schedule = float | Callable[[int], float]


def _check_schedule(owner: str, value: object) -> None:
    """Refuse what is neither a number nor a schedule; how large it is, the setting checks."""
    if not callable(value) and not is_number(value):
        raise ConfigError(f"{owner}: value must be a number or a schedule, got {show(value)}")


def value_at(schedule: Schedule, step: int) -> float:
    """The value of a number or a schedule at a step."""
    return float(schedule(step)) if callable(schedule) else float(schedule)


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value at every step."""

    value: float

    def __post_init__(self) -> None:
        check_number("Constant: value", self.value)

    def __call__(self, step: int) -> float:
        """The value at a step."""
        return self.value


@dataclass(frozen=True, slots=True)
class Linear:
    """A straight line from `start` to `end` over `steps`, then flat."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        check_number("Linear: start", self.start)
        check_number("Linear: end", self.end)
        check_count("Linear: steps", self.steps)

    def __call__(self, step: int) -> float:
        """The value at a step."""
        done = min(step / self.steps, 1.0)
        return self.start + (self.end - self.start) * done


@dataclass(frozen=True, slots=True)
class Cosine:
    """end + (start − end)(1 + cos(πt/T))/2 over `steps`, then flat at `end`."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        check_number("Cosine: start", self.start)
        check_number("Cosine: end", self.end)
        check_count("Cosine: steps", self.steps)

    def __call__(self, step: int) -> float:
        """The value at a step."""
        done = min(step / self.steps, 1.0)
        return self.end + 0.5 * (self.start - self.end) * (1.0 + math.cos(math.pi * done))


@dataclass(frozen=True, slots=True)
class Geometric:
    """start · (end/start)^(t/T) over `steps`, then flat: equal factors in equal times."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        check_count("Geometric: steps", self.steps)
        check_positive("Geometric: start", self.start)
        check_positive("Geometric: end", self.end)

    def __call__(self, step: int) -> float:
        """The value at a step."""
        return self.start * math.pow(self.end / self.start, min(step / self.steps, 1.0))


@dataclass(frozen=True, slots=True)
class PowerDecay:
    """start · (t + 1)^−exponent; square-summable but not summable for ½ < exponent ≤ 1."""

    start: float
    exponent: float = 0.6

    def __post_init__(self) -> None:
        check_number("PowerDecay: start", self.start)
        check_not_negative("PowerDecay: exponent", self.exponent)

    def __call__(self, step: int) -> float:
        """The value at a step."""
        return self.start * math.pow(step + 1, -self.exponent)


@dataclass(frozen=True, slots=True)
class Length:
    """A radius that is a length in coordinate space, whatever the temperature."""

    value: Schedule

    def __post_init__(self) -> None:
        _check_schedule("Length", self.value)

    def at(self, step: int, temperature: float) -> float:
        """The length at a step; the temperature does not enter."""
        del temperature
        return value_at(self.value, step)


@dataclass(frozen=True, slots=True)
class TimesTemperature:
    """A radius that is a multiple of the temperature: r·ε, the paper's default form."""

    value: Schedule

    def __post_init__(self) -> None:
        _check_schedule("TimesTemperature", self.value)

    def at(self, step: int, temperature: float) -> float:
        """The length at a step: the multiple times the temperature."""
        return value_at(self.value, step) * temperature


Radius = Length | TimesTemperature


def length_at(name: str, radius: Radius, step: int, temperature: float) -> float:
    """The length of a radius at a step; refuse what is not positive and finite."""
    length = radius.at(step, temperature)
    if not (length > 0 and math.isfinite(length)):
        raise ConfigError(f"{name} must be a positive length, got {length} at step {step}")
    return length


def temperature_at(temperature: Schedule, step: int) -> float:
    """The temperature at a step; refuse what is not positive and finite."""
    value = value_at(temperature, step)
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"temperature must be > 0, got {value} at step {step}")
    return value
