"""Text that users and other programs hand over: read and parsed within limits.

A file may be a pipe, without end, nested without end, or hold numbers that nothing can compute
with. All of that is refused with a reason, before anything recurses, overflows or waits.
"""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from errno import ELOOP, ENAMETOOLONG
from pathlib import Path
from typing import Any

from hardstep.errors import DataError

MOST_BYTES = 1 << 20  # of a file written by hand
MOST_DEPTH = 64  # of lists and tables inside each other
MOST_DIGITS = 300  # of a whole number, so that a float can hold it
MOST_DOTS = 1000  # on a line of TOML, where one takes a table deeper
_LARGEST = 10**MOST_DIGITS
_TOO_DEEP = f"it is nested more than {MOST_DEPTH} deep"
_TOO_LARGE = f"a whole number in it has more than {MOST_DIGITS} digits"


def check_path(text: str | Path, option: str) -> Path:
    """A path as it was typed for an option.

    Raises:
        DataError: It is empty, or no file can be called so.
    """
    if not str(text).strip():
        raise DataError(f"{option} is empty; name a file or a folder")
    try:
        os.stat(text)
    except OSError as error:
        if error.errno in (ENAMETOOLONG, ELOOP):
            raise DataError(f"{option} {text}: {error.strerror}; name another") from error
    except ValueError as error:
        raise DataError(f"{option} {text}: {error}; name another") from error
    return Path(text)


def read_text(path: Path, what: str) -> str:
    """The text of a file that was written by hand, such as a suite; errors call it `what`.

    Raises:
        DataError: It is missing, no file, too long, or not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe may never end, and /dev/zero does not
            raise DataError(f"{what} {path} is a folder, a pipe or a device; name a file")
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{what} {path} cannot be read: {reason}") from error
    if len(content) > MOST_BYTES:
        raise DataError(f"{what} {path} has more than {MOST_BYTES:,} bytes; is it another file?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{what} {path} is not UTF-8 text, at byte {error.start}; save it as UTF-8"
        ) from error


def parse_json(text: str) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: It is not JSON, or beyond a limit; the message says which.
    """
    return _parse(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds.

    Raises:
        ValueError: It is not TOML, or beyond a limit; the message says which.
    """
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        raise ValueError(_TOO_DEEP)  # parsing would take the square of its time
    found: dict[str, Any] = _parse(tomllib.loads, text)
    return found


def _parse(parse: Callable[[str], Any], text: str) -> Any:
    try:
        value = parse(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except ValueError as error:
        if "int_max_str" in str(error):  # Python converts no such number, and advises how to
            raise ValueError(_TOO_LARGE) from error
        raise
    _check(value)
    return value


def _check(value: Any) -> None:
    """Level by level: what is nested too deep would be too deep for a recursion, too."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, int) and not -_LARGEST < one < _LARGEST:
                raise ValueError(_TOO_LARGE)
        if not inner:
            return
        level = inner
    raise ValueError(_TOO_DEEP)
