"""Arguments of the rivals, refused with what was seen and where."""

import math
from numbers import Real
from typing import TypeGuard

from hardstep.errors import ConfigError
from hardstep.schedules import Schedule, value_at


def is_number(value: object) -> TypeGuard[float]:
    """Whether something is a number; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(owner: str, name: str, value: object) -> None:
    """Refuse what is not a number > 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{owner}: {name} must be a number > 0 and finite, got {value!r}")


def check_not_negative(owner: str, name: str, value: object) -> None:
    """Refuse what is not a number >= 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ConfigError(f"{owner}: {name} must be a number >= 0 and finite, got {value!r}")


def check_rate(owner: str, rate: object) -> None:
    """Refuse a learning rate that is no number > 0; a schedule is checked when it is used."""
    if not callable(rate):
        check_positive(owner, "learning_rate", rate)


def check_count(owner: str, name: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{owner}: {name} must be a whole number >= {least}, got {value!r}")


def check_pairs(owner: str, population: object) -> None:
    """Refuse a population that is not made of pairs."""
    check_count(owner, "population", population, 2)
    assert isinstance(population, int)
    if population % 2:
        raise ConfigError(
            f"{owner}: population must be even, since its members come in pairs, got "
            f"{population}; use {population + 1}"
        )


def rate_at(owner: str, rate: Schedule, step: int) -> float:
    """The learning rate at a step, refused if it is negative; schedules may end at 0."""
    value = value_at(rate, step)
    if not 0 <= value < math.inf:
        raise ConfigError(f"{owner}: learning_rate must be >= 0, got {value} at step {step}")
    return value
