"""A column of numbers from a CSV file, every row of it checked."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import torch
from torch import Tensor

from hardstep._checks import show, suggest
from hardstep.errors import DataError

_ENCODING = "utf-8-sig"  # spreadsheets begin a file with a byte order mark


def read_column(path: Path | str, column: str, time: str | None = None) -> Tensor:
    """The numbers of a column, float64, in the order of the rows.

    Args:
        path: A CSV file whose first line names the columns; gzipped if its name ends in .gz.
        column: Which one.
        time: The column of times, if rows have to follow each other at equal intervals.

    Raises:
        DataError: The file, the column or a row is at fault; the message names the line.
    """
    path = Path(path)
    rows = _read_rows(path)
    _, names = next(rows, (0, []))
    place = _find(path, names, column)
    clock = None if time is None else _Clock(path, time, _find(path, names, time))
    found: list[float] = []
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(
                f"{path} line {line} has {len(row)} cells and the first line {len(names)}; "
                "is a row cut off?"
            )
        found.append(_to_number(row[place], f"{path} line {line}, column {column}"))
        if clock is not None:
            clock.check(row, line)
    if not found:
        raise DataError(f"{path} has no rows below its first line")
    return torch.tensor(found, dtype=torch.float64)


def _read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not empty, with the numbers of their lines."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding=_ENCODING, newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text, at byte {error.start}; save it as UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from error


def _find(path: Path, names: list[str], column: str) -> int:
    if column not in names:
        raise DataError(
            f"{path} has no column {column!r}; {suggest(column, names)}"
            if names
            else f"{path} is empty; its first line should name the columns"
        )
    return names.index(column)


def _to_number(text: str, where: str) -> float:
    if not text.strip():
        raise DataError(f"{where} is empty; fill the gap, or leave out rows up to it")
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where}: {show(text)} is not a number") from None
    if not math.isfinite(value):
        raise DataError(f"{where}: {text.strip()} is not a finite number; fill the gap")
    return value


class _Clock:
    """The times of rows, which have to follow each other at the interval of the first two."""

    def __init__(self, path: Path, column: str, place: int) -> None:
        self.path, self.column, self.place = path, column, place
        self.last: datetime | None = None
        self.interval: timedelta | None = None

    def check(self, row: list[str], line: int) -> None:
        """The next row."""
        where = f"{self.path} line {line}, column {self.column}"
        try:
            now = datetime.fromisoformat(row[self.place].strip())
        except ValueError:
            raise DataError(
                f"{where}: {show(row[self.place])} is not a time such as 2016-07-01 00:00:00"
            ) from None
        if self.last is not None:
            self._compare(now, where)
        self.last = now

    def _compare(self, now: datetime, where: str) -> None:
        assert self.last is not None
        try:
            passed = now - self.last
        except TypeError:
            raise DataError(f"{where}: {now} and {self.last} differ in having a zone") from None
        self.interval = self.interval or passed
        if passed != self.interval or passed <= timedelta(0):
            raise DataError(
                f"{where}: {now} comes {passed} after the row before, where rows are "
                f"{self.interval} apart; fill the gap, or leave out rows up to it"
            )
