"""Reading back the log of a run, which `JsonlLog` writes: a JSON object per line."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from hardstep._checks import is_count, is_float, show
from hardstep._seals import take_checksum
from hardstep.errors import DataError

NUMBERS = {"step": "loss", "validation": "value"}  # what is drawn of an event; null if it was NaN


class Line(NamedTuple):
    """A line as it stands in the file, and what it says."""

    text: str
    row: dict[str, Any]


def read_log(path: Path) -> list[Line]:
    """The lines of a log, without the rest of one that a crash has cut short.

    Raises:
        DataError: The file cannot be read, or a line is damaged or of another kind.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    lines = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        text, row, fault = _parse(line)
        if fault:
            raise DataError(
                f"{path}, line {number}: {fault}; restore the log from a copy, or delete it, since "
                "a run can be resumed without"
            )
        lines.append(Line(text, row))
    return lines


def _parse(line: bytes) -> tuple[str, Any, str]:
    try:
        text = line.decode()
        row = json.loads(text)
    except (ValueError, RecursionError):
        return "", None, "not a JSON object"
    return text, row, take_checksum(text, row) or _find_fault(row)


def _find_fault(row: Any) -> str:
    if not isinstance(row, dict):
        return f"a line of a log is an object, this is {show(row)}"
    if not is_count(row.get("step")):
        return f"its step must be a whole number >= 0, got {show(row.get('step'))}"
    if row.get("event") not in NUMBERS:
        return f"its event must be {' or '.join(NUMBERS)}, got {show(row.get('event'))}"
    name = NUMBERS[row["event"]]
    value = row.get(name)
    if value is not None and not is_float(value):
        return f"its {name} must be a number or null, got {show(value)}"
    return ""
