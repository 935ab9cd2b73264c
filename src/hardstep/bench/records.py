"""Runs on disk: one JSON object per line, only ever appended.

A record is one run: what was run (task, data, method, seed, settings, budget), where (versions,
machine, commit), and what came of it (curves, counts, scores). Several processes may append to one
file at once; a process that dies while writing costs its own line and no other.
"""

import fcntl
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hardstep.errors import DataError

SCHEMA = 1
AXES = ("steps", "evaluations", "seconds", "cpu_seconds")  # of a curve, beside its values
REQUIRED = ("task", "data", "method", "seed", "curve", "test_reads")

Record = dict[str, Any]


class Loaded(NamedTuple):
    """Records of a file, and what was skipped: one sentence each, with its line."""

    records: list[Record]
    skipped: list[str]


def append(path: Path | str, record: Mapping[str, Any]) -> None:
    """Add a run to a file.

    Raises:
        DataError: The record is not one: a field is missing or its curve disagrees with itself.
    """
    whole = {"schema": SCHEMA, **record}
    reason = _fault(whole)
    if reason:
        raise DataError(f"{path}: this run cannot be recorded: {reason}")
    line = json.dumps(whole, allow_nan=False).encode() + b"\n"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not _ends_with_newline(path):
            line = b"\n" + line  # after what another process left when it died
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())


def number(value: Any) -> float | None:
    """A finite number as it is, anything else as none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def score_of(record: Record, name: str) -> float:
    """A score, NaN if there is none: the run diverged."""
    score = number(record.get(name))
    return math.nan if score is None else score


def _ends_with_newline(path: Path) -> bool:
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"\n"


def load(path: Path | str) -> Loaded:
    """Every run of a file that can be used; the file is not touched."""
    path = Path(path)
    if not path.exists():
        return Loaded([], [])
    records, skipped = [], []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            skipped.append(f"{path}, line {number}: not a whole JSON object, cut off perhaps")
            continue
        reason = _fault(record)
        if reason:
            skipped.append(f"{path}, line {number}: {reason}")
        else:
            records.append(record)
    return Loaded(records, skipped)


def _fault(record: Any) -> str:
    """Why something is not a record of this version; empty if it is one."""
    if not isinstance(record, dict):
        return f"a record is an object, this is a {type(record).__name__}"
    if record.get("schema") != SCHEMA:
        return f"schema {record.get('schema')!r}, this version reads {SCHEMA}"
    missing = [name for name in REQUIRED if name not in record]
    if missing:
        return f"{missing[0]} is missing"
    reads = record["test_reads"]
    if reads not in (0, 1):
        return f"its test set was read {reads!r} times, so its score is not one"
    return _curve_fault(record["curve"])


def _curve_fault(curve: Any) -> str:
    if not isinstance(curve, dict) or "value" not in curve:
        return "its curve has no values"
    names = ("value", *AXES)
    odd = [name for name in names if not isinstance(curve.get(name, []), list)]
    if odd:
        return f"{odd[0]} of its curve is not a list"
    lengths = {name: len(curve.get(name, ())) for name in names}
    if len(set(lengths.values())) > 1:
        return f"the axes of its curve disagree: {lengths}"
    for name in AXES:
        numbers = curve[name]
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
            return f"{name} of its curve are not finite"
        if any(after < before for before, after in zip(numbers, numbers[1:], strict=False)):
            return f"{name} of its curve run backwards"
    return ""
