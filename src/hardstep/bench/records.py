"""Records on disk: one JSON object per line, only ever appended.

A record is one run: what was run (task, data, method, seed, settings, budget), where (versions,
machine, commit), what came of it (curves, counts, scores), and a checksum of all this. Several
processes may append to one file at once; a process that dies while writing costs its own line and
no other.

    runs.jsonl        what is appended to
    runs.jsonl.gz     its earlier part, packed (gzip -n -9); it is read along, before the other
"""

import fcntl
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hardstep._checks import is_whole
from hardstep._files import explain_failed_write
from hardstep._reading import parse_json
from hardstep._seals import seal_json, take_checksum
from hardstep.bench.axes import AXES, PLAYED
from hardstep.errors import DataError

Record = dict[str, Any]
SCHEMA = 1
REQUIRED = ("task", "data", "method", "seed", "curve", "test_reads")
CURVE_FIELDS = (*(axis.field for axis in AXES.values()), "cpu_seconds")  # beside its values
COUNTS = (*CURVE_FIELDS, "peak_memory_bytes")  # of the whole run, where they were noted
LARGEST = 1e100  # number in a record: sums and squares of such are finite


class Loaded(NamedTuple):
    """Records of a file, and what was skipped: one sentence each, with its line."""

    records: list[Record]
    skipped: list[str]


def append(path: Path | str, record: Mapping[str, Any]) -> None:
    """Add a run to a file.

    Raises:
        DataError: The record is not one: a field is missing, or parts of it disagree. Or the file
            is a packed one, or cannot be written.
    """
    path = Path(path)
    check_appendable(path)
    whole = {"schema": SCHEMA, **record}
    reason = find_fault(whole)
    if reason:
        raise DataError(f"{path}: this run cannot be recorded: {reason}")
    line = seal_json(json.dumps(whole, allow_nan=False)).encode() + b"\n"
    with explain_failed_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not _ends_with_newline(path):
                line = b"\n" + line  # after what another process left when it died
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())


def check_appendable(path: Path) -> None:
    """Refuse a packed file.

    Raises:
        DataError: It ends in .gz.
    """
    if path.suffix == ".gz":
        raise DataError(
            f"{path} is packed, so nothing is appended to it; name {path.with_suffix('').name}, "
            "with which it is read along"
        )


def _ends_with_newline(path: Path) -> bool:
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"\n"


def load(path: Path | str) -> Loaded:
    """Every run of a file, or of all files of a folder, that can be used; no file is touched.

    Raises:
        DataError: A packed file is damaged.
    """
    records, skipped = [], []
    for place, line in read_lines(Path(path)):
        try:
            record = parse_json(line)
        except json.JSONDecodeError:
            skipped.append(f"{place}: not a whole JSON object, cut off perhaps")
            continue
        except ValueError as error:
            skipped.append(f"{place}: {error}")
            continue
        reason = take_checksum(line, record) or find_fault(record)
        if reason:
            skipped.append(f"{place}: {reason}")
        else:
            records.append(record)
    return Loaded(records, skipped)


def find_files(path: Path) -> list[Path]:
    """The file and its packed part, or all files with records in a folder; oldest part first."""
    if os.path.isdir(path):
        found = filter(os.path.isfile, [*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        return sorted(found, key=lambda file: (file.name.removesuffix(".gz"), file.suffix != ".gz"))
    packed = [path.with_name(f"{path.name}.gz")] if path.suffix == ".jsonl" else []
    return [file for file in (*packed, path) if os.path.isfile(file)]


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines that are not empty, each with the file and number where it stands.

    Raises:
        DataError: A packed file is damaged.
    """
    for file in find_files(path):
        text = _read(file).decode("utf-8", errors="replace")
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"{file}, line {number}", line


def _read(file: Path) -> bytes:
    content = file.read_bytes()
    if file.suffix != ".gz":
        return content
    try:
        if not content:
            raise EOFError("it is empty")
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is damaged and cannot be unpacked: {error}") from error


def to_number(value: Any) -> float | None:
    """A number that can be computed with as it is, anything else as none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def score_of(record: Record, split: str) -> float:
    """A score, NaN if there is none: the run diverged."""
    score = to_number(record.get(split))
    return math.nan if score is None else score


def find_fault(record: Any) -> str:
    """Why something is not a record of this version, in one sentence; empty if it is one."""
    if not isinstance(record, dict):
        return f"a record is an object, this is a {type(record).__name__}"
    if record.get("schema") != SCHEMA:
        return f"schema {record.get('schema')!r}, this version reads {SCHEMA}"
    missing = [name for name in REQUIRED if name not in record]
    if missing:
        return f"{missing[0]} is missing"
    checks = (_of_names, _of_scores, _of_budget, _of_metric, _of_counts, _of_curve)
    return next(filter(None, (check(record) for check in checks)), "")


def _of_names(record: Record) -> str:
    for name in ("task", "data", "method", "study", "variant"):
        if not isinstance(record.get(name, ""), str):
            return f"{name} is not a name but {record[name]!r}"
    if not is_whole(record["seed"]):
        return f"its seed is not a whole number but {record['seed']!r}"
    if not isinstance(record.get("options") or {}, dict):
        return f"its options are not named: {record['options']!r}"
    return ""


def _of_scores(record: Record) -> str:
    """A score of the test set needs one reading of it, no more and no less."""
    reads = record["test_reads"]
    if isinstance(reads, bool) or reads not in (0, 1):
        return f"its test set was read {reads!r} times, so its score is not one"
    if reads != ("test" in record):
        return (
            f"its test set was read {reads} times, and it has "
            f"{'a' if 'test' in record else 'no'} test score"
        )
    if not record.keys() & {"test", "valid"}:
        return "it has neither a test nor a validation score"
    for name in ("test", "valid"):
        score = record.get(name)
        if score is not None and to_number(score) is None:
            return f"its {name} score is {score!r}, not a finite number up to {LARGEST:g}"
    return ""


def _of_budget(record: Record) -> str:
    budget = record.get("budget")
    given = budget if isinstance(budget, dict) else {}
    axis, amount = given.get("axis"), to_number(given.get("amount"))
    if amount is None:
        return f"its budget is {budget!r}, so it is not known what was equal"
    if not isinstance(axis, str) or axis not in AXES or amount <= 0:
        return f"a budget is so many {', '.join(AXES)}, got {amount} {axis!r}"
    return ""


def _of_metric(record: Record) -> str:
    metric = record.get("metric")
    if metric is None or (isinstance(metric, dict) and isinstance(metric.get("name"), str)):
        return ""
    return f"its metric has no name: {metric!r}"


def _of_counts(record: Record) -> str:
    for name in COUNTS:
        if name in record and (to_number(record[name]) is None or record[name] < 0):
            return f"its {name} are {record[name]!r}, not a finite number up to {LARGEST:g}"
    return ""


def _of_curve(record: Record) -> str:
    curve = record["curve"]
    if not isinstance(curve, dict) or "value" not in curve:
        return "its curve has no values"
    fields = [name for name in CURVE_FIELDS if name != PLAYED or name in curve]
    names = ("value", *fields)
    odd = [name for name in names if not isinstance(curve.get(name, []), list)]
    if odd:
        return f"{odd[0]} of its curve is not a list"
    lengths = {name: len(curve.get(name, ())) for name in names}
    if len(set(lengths.values())) > 1:
        return f"the axes of its curve disagree: {lengths}"
    for name in fields:
        numbers = curve[name]
        if not all(to_number(x) is not None for x in numbers):
            return f"{name} of its curve are not finite numbers up to {LARGEST:g}"
        if any(after < before for before, after in zip(numbers, numbers[1:], strict=False)):
            return f"{name} of its curve run backwards"
        if numbers and numbers[-1] > record.get(name, math.inf):
            return f"its curve ends at {numbers[-1]:g} {name}, the run at {record[name]:g}"
    return ""
