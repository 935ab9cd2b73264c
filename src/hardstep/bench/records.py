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

from hardstep.bench.faults import SCHEMA, fault, number
from hardstep.errors import DataError

Record = dict[str, Any]


class Loaded(NamedTuple):
    """Records of a file, and what was skipped: one sentence each, with its line."""

    records: list[Record]
    skipped: list[str]


def append(path: Path | str, record: Mapping[str, Any]) -> None:
    """Add a run to a file.

    Raises:
        DataError: The record is not one: a field is missing, or parts of it disagree.
    """
    whole = {"schema": SCHEMA, **record}
    reason = fault(whole)
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
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            skipped.append(f"{path}, line {place}: not a whole JSON object, cut off perhaps")
            continue
        reason = fault(record)
        if reason:
            skipped.append(f"{path}, line {place}: {reason}")
        else:
            records.append(record)
    return Loaded(records, skipped)
