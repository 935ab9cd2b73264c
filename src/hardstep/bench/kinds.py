"""What kind of value a key of a suite takes; another kind is refused in one sentence."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hardstep._checks import check_name, is_number, is_whole
from hardstep.errors import ConfigError

Fits = Callable[[Any], bool]


class Kind(NamedTuple):
    """A kind of value: whether one is of it, and what to write instead if not."""

    fits: Fits
    wanted: str


def check_kinds(table: Mapping[str, Any], kinds: Mapping[str, Kind], where: str) -> None:
    """Refuse keys that do not exist, and values that are not of their kind.

    Args:
        table: As TOML gives it.
        kinds: By key.
        where: The table is, for messages.

    Raises:
        ConfigError: With the nearest key, or with what the value should be.
    """
    for key, value in table.items():
        check_name(key, kinds, f"key of {where}")
        if not kinds[key].fits(value):
            raise ConfigError(f"{key} of {where} must be {kinds[key].wanted}, got {value!r}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def _is_whole(value: Any) -> bool:
    return is_whole(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(fits(item) for item in value)


def _some_of(fits: Fits) -> Fits:
    return lambda value: value != [] and _list_of(fits)(value)


def _differing(fits: Fits) -> Fits:
    return lambda value: _some_of(fits)(value) and len(set(value)) == len(value)


def _table_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, Mapping) and all(fits(item) for item in value.values())


NAME = Kind(_is_text, "a name in quotes")
NAMES = Kind(_some_of(_is_text), 'a list of names such as ["snn", "int8"]')
SEEDS = Kind(_differing(_is_whole), "a list of different whole numbers such as [0, 1, 2]")
SWEEP = Kind(_list_of(_is_whole), "a list of whole numbers such as [100]; [] for no sweep")
AMOUNT = Kind(_is_amount, "a number > 0 and finite")
TRUTH = Kind(_is_truth, "true or false")
RUNS = Kind(_list_of(_is_table), "tables written as [[run]]")
VARIANTS = Kind(_table_of(_is_table), 'tables such as greedy = { solver = "greedy" }')
OPTIONS = Kind(_table_of(_table_of(_is_table)), "tables such as [options.snn.mezo]")
