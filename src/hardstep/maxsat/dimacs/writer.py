"""Writer of the formats that `reader` reads.

A formula is written as it is held: in normal form, without the tautologies it was given with.
"""

import gzip
import lzma
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, cast

import numpy as np

from hardstep.errors import DataError
from hardstep.maxsat.formula import Formula

# Clauses turned into text at once, to bound the memory.
_BLOCK = 1 << 16
# Stand for words in arrays of numbers; no weight and no literal is so small.
_CLOSE, _HARD = -(2**63), -(2**63) + 1


def write(formula: Formula, path: str | PathLike[str], *, header: bool = True) -> None:
    """Write a formula to a file, packed if the name ends in .gz or .xz.

    With a header, that is CNF if every clause is soft and weighs 1, else WCNF with `top` one above
    the total weight. Without, it is the newer WCNF with h for hard clauses, which cannot tell of
    variables after the last one that occurs.

    Raises:
        DataError: The file cannot be written.
    """
    try:
        with _open(Path(path)) as stream:
            for text in _texts(formula, header=header):
                stream.write(text.encode("ascii"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be written ({reason}); name another place") from error


def dumps(formula: Formula, *, header: bool = True) -> str:
    """The text that `write` writes."""
    return "".join(_texts(formula, header=header))


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "wb", compresslevel=6))
    if path.suffix == ".xz":
        return cast(IO[bytes], lzma.open(path, "wb", preset=1))
    return path.open("wb")


def _texts(formula: Formula, *, header: bool) -> Iterator[str]:
    top = formula.total_weight + 1
    weighted = not header or formula.hard is not None or bool((formula.weights != 1).any())
    if header:
        kind, last = ("wcnf", f" {top}") if weighted else ("cnf", "")
        yield f"p {kind} {formula.num_variables} {formula.num_clauses}{last}\n"
    for first in range(0, formula.num_clauses, _BLOCK):
        text = _block(formula, first, min(first + _BLOCK, formula.num_clauses), weighted=weighted)
        yield text.replace(str(_HARD), str(top) if header else "h")


def _block(formula: Formula, first: int, last: int, *, weighted: bool) -> str:
    starts = formula.starts[first : last + 1]
    literals = formula.literals[starts[0] : starts[-1]].astype(np.int64)
    signed = ((literals >> 1) + 1) * (1 - 2 * (literals & 1))
    ends = starts[1:] - starts[0]
    words = np.insert(signed, ends, _CLOSE)
    if weighted:
        weights = formula.weights[first:last].copy()
        if formula.hard is not None:
            weights[formula.hard[first:last]] = _HARD
        words = np.insert(words, starts[:-1] - starts[0] + np.arange(last - first), weights)
    text = " ".join(map(str, words.tolist())) + " "
    return text.replace(f"{_CLOSE} ", "0\n")
