"""Checks of what users hand over: numbers, counts and names, refused in one sentence.

`what` names the argument and its owner, for instance "OpenAiEs: population".
"""

import inspect
import math
import reprlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from sys import float_info
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeGuard

from hardstep.errors import ConfigError, ObjectiveError

LONGEST = 80  # characters of a value that a message repeats
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 2 * LONGEST


def show(value: object) -> str:
    """A value for a message, on one short line: of tensors the shape, of functions the name."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"a {type(value).__name__} of shape {tuple(shape)}{_name_oddity(value)}"
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        return f"the function {value.__name__}"
    # Nested values are cut before they are written down: some of those in files are endless.
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _name_oddity(value: object) -> str:
    """What is unusual about a tensor: numbers that are not real, or a form that is not dense."""
    kinds = (str(getattr(value, name, "")) for name in ("dtype", "layout"))
    odd = [kind.removeprefix("torch.") for kind in kinds if "complex" in kind or "sparse" in kind]
    return "".join(f", {kind}" for kind in odd)


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
    return is_number(value) and (value != value or abs(value) <= LARGEST or abs(value) == math.inf)


def is_count(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether something is a whole number from `least` on, and no larger than counts get."""
    return is_whole(value) and least <= value < 2**63


def is_same(seen: object, wanted: object) -> bool:
    """Whether something read from a file is this value; a tensor there is none."""
    return isinstance(seen, type(wanted)) and seen == wanted


def check_number(what: str, value: object) -> None:
    """Refuse what is not a finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise ConfigError(f"{what} must be a finite number, got {show(value)}")


def check_positive(what: str, value: object) -> None:
    """Refuse what is not a finite number > 0."""
    if not is_number(value) or not 0 < value <= LARGEST:
        raise ConfigError(f"{what} must be a number > 0 and finite, got {show(value)}")


def check_not_negative(what: str, value: object) -> None:
    """Refuse what is not a finite number >= 0."""
    if not is_number(value) or not 0 <= value <= LARGEST:
        raise ConfigError(f"{what} must be a number >= 0 and finite, got {show(value)}")


def check_share(what: str, value: object) -> None:
    """Refuse what is not a number above 0 and at most 1."""
    if not is_number(value) or not 0 < value <= 1:
        raise ConfigError(f"{what} must be a number in (0, 1], got {show(value)}")


def check_count(what: str, value: object, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`, or does not fit 63 bits."""
    if not is_whole(value) or value < least:
        raise ConfigError(f"{what} must be a whole number >= {least}, got {show(value)}")
    if value >= MOST:
        raise ConfigError(f"{what} must be a whole number below 2^63, got {show(value)}")


def check_real(what: str, value: Any) -> None:
    """Refuse complex losses, one or several; `what` is such as "closure must return".

    Raises:
        ObjectiveError: They are.
    """
    values = value if isinstance(value, list | tuple) else [value]
    if any(_is_complex(item) for item in values):
        raise ObjectiveError(
            f"{what} real numbers, got complex ones ({show(value)}); take their .real or abs()"
        )


def _is_complex(value: Any) -> bool:
    kind = getattr(value, "dtype", None)  # torch says is_complex, numpy has a letter for it
    known = getattr(kind, "is_complex", getattr(kind, "kind", "") == "c")
    return bool(known) or isinstance(value, complex)


def list_arguments(function: Callable[..., Any], num: int) -> list[str] | None:
    """Its arguments, if it cannot be called with so many; None if it can, or does not say."""
    try:
        module = hasattr(function, "forward") and not isinstance(function, type)
        signature = inspect.signature(function.forward if module else function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # written in C
        return None
    try:
        signature.bind(*range(num))
    except TypeError:
        return list(signature.parameters)
    return None


def check_factory(what: str, factory: Any) -> None:
    """Refuse what does not make a new module when called without arguments."""
    kind = type(factory).__name__
    if not callable(factory):
        raise ConfigError(f"{what} must be a function that returns a new module, got {kind}")
    if hasattr(factory, "named_parameters") and not isinstance(factory, type):
        raise ConfigError(
            f"{what} must be a function that returns a new module, got a module ({kind}); put "
            "lambda: before it, or give its class"
        )


def check_method(what: str, value: object, method: str, example: str) -> None:
    """Refuse what does not have a method; a class is no object of it."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise ConfigError(f"{what} must be an object such as {example}, got {show(value)}")


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
