"""Labeled sentences from a tab-separated file, every line of it checked."""

import gzip
import zlib
from pathlib import Path

from hardstep._checks import show
from hardstep.errors import DataError

_ENCODING = "utf-8-sig"


def read_sentences(path: Path | str) -> tuple[list[str], list[int]]:
    """Sentences and their classes, from lines `sentence TAB 0 or 1` below a first line of names.

    Args:
        path: The file; gzipped if its name ends in .gz. Empty lines are left out.

    Raises:
        DataError: The file or a line is at fault, or all lines are of one class.
    """
    path = Path(path)
    sentences: list[str] = []
    labels: list[int] = []
    for number, line in enumerate(_read_lines(path), 1):
        if number == 1 or not line.strip():
            continue
        sentence, tab, label = line.rpartition("\t")
        where = f"{path} line {number}"
        if not tab or not sentence.strip():
            raise DataError(f"{where} is not a sentence, a tab and a class: {show(line)}")
        if label.strip() not in ("0", "1"):
            raise DataError(f"{where}: the class must be 0 or 1, got {show(label.strip())}")
        sentences.append(sentence.strip())
        labels.append(int(label))
    if len(set(labels)) < 2:
        found = f"all {len(labels):,} are of class {labels[0]}" if labels else "there are none"
        raise DataError(f"{path}: a classifier needs sentences of both classes, and {found}")
    return sentences, labels


def _read_lines(path: Path) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            return stream.read().decode(_ENCODING).replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text, at byte {error.start}; save it as UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from error
