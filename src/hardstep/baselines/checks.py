"""Arguments of the rivals, refused with what was seen and where."""

import math

from hardstep._checks import check_count, check_positive
from hardstep.errors import ConfigError
from hardstep.schedules import Schedule, value_at


def check_rate(owner: str, rate: object) -> None:
    """Refuse a learning rate that is no number > 0; a schedule is checked when it is used."""
    if not callable(rate):
        check_positive(f"{owner}: learning_rate", rate)


def check_pairs(owner: str, population: object) -> None:
    """Refuse a population that is not made of pairs."""
    check_count(f"{owner}: population", population, 2)
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
