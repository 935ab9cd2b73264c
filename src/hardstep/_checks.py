"""Checks of what users hand over: numbers, counts and names, refused in one sentence.

`what` names the argument and its owner, for instance "OpenAiEs: population".
"""

import math
import reprlib
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from sys import float_info
from typing import TypeGuard

from hardstep.errors import ConfigError

LARGEST = float_info.max  # a whole number may be finite and yet no float
MOST = 2**63


def is_number(value: object) -> TypeGuard[float]:
    """Whether something is a number; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether something is a whole number; true and false are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_float(value: object) -> TypeGuard[float]:
    """Whether something is a number that a float can hold: infinities and NaN, not 10**400."""
    return is_number(value) and (
        value != value or abs(value) <= sys.float_info.max or abs(value) == math.inf
    )


def is_count(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether something is a whole number from `least` on, and no larger than counts get."""
    return is_whole(value) and least <= value < 2**63


def is_same(seen: object, wanted: object) -> bool:
    """Whether something read from a file is this value; a tensor there is none."""
    return isinstance(seen, type(wanted)) and seen == wanted


def abridge(value: object) -> str:
    """What a message shows of a value: one line, and not a long one."""
    return " ".join(reprlib.repr(value).split())


def check_positive(what: str, value: object) -> None:
    """Refuse what is not a finite number > 0."""
    if not is_number(value) or not 0 < value <= LARGEST:
        raise ConfigError(f"{what} must be a number > 0 and finite, got {value!r}")


def check_not_negative(what: str, value: object) -> None:
    """Refuse what is not a finite number >= 0."""
    if not is_number(value) or not 0 <= value <= LARGEST:
        raise ConfigError(f"{what} must be a number >= 0 and finite, got {value!r}")


def check_count(what: str, value: object, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`, or does not fit 63 bits."""
    if not is_whole(value) or value < least:
        raise ConfigError(f"{what} must be a whole number >= {least}, got {value!r}")
    if value >= MOST:
        raise ConfigError(f"{what} must be a whole number below 2^63, got {value!r}")


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Refuse a name that does not exist, with the nearest one that does.

    Raises:
        ConfigError: The name is not known; the message lists all names if none is near.
    """
    names = list(known)
    if name not in names:
        raise ConfigError(f"no {what} is called {name!r}; {suggest(name, names)}")


def suggest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """A hint for a name that is not known: the nearest one, or else all there are."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return otherwise or f"there is {', '.join(names)}"
