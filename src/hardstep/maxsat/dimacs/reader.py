"""Reader of DIMACS CNF and of both WCNF dialects, plain, gzip or xz.

The format is found from the content; see `clauses` for the three kinds of file and for
what a clause is. Also as the formats have it:

- Lines that start with c are comments, wherever they are.
- A line that starts with % ends a CNF file; at most a 0 may follow (SATLIB's files do this).
- Without a 'p' line the largest variable that occurs is the last one. A CNF file that lost its
  header is refused as soon as a clause starts with a negated variable; before that, its first
  literals cannot be told from weights.
"""

import re
from collections.abc import Iterator
from io import BufferedReader, BytesIO, RawIOBase
from itertools import accumulate, chain
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hardstep.errors import CapacityError, DataError
from hardstep.maxsat.dimacs.clauses import Clauses, Header, parse_clauses, split_header
from hardstep.maxsat.dimacs.text import BLANK, Passage, read_passages, refusal
from hardstep.maxsat.formula import MAX_TOTAL_WEIGHT, Formula, sum_exactly
from hardstep.maxsat.normal import row_starts
from hardstep.maxsat.sizes import check_formula

# Bytes parsed at once: much against the cost of a numpy call, little against memory.
PIECE_BYTES = 1 << 18
CHECK_EVERY = 1 << 22  # literals and clauses between two looks at the free memory
_WORD_BYTES = b"-0123456789h"
_HEADER = re.compile(rb"\n[ \t\r]*p")
_TRAILER = re.compile(rb"\n[ \t\r]*%")


def read(path: str | PathLike[str]) -> Formula:
    """The formula in a file.

    Raises:
        DataError: The file is missing, damaged, or not a formula; the message says where.
        CapacityError: It does not fit in memory.
    """
    with _open(Path(path)) as stream:
        return _parse(stream, str(path))


def loads(content: bytes | str, name: str = "text") -> Formula:
    """The formula in a string, which errors call by the name.

    Raises:
        DataError: It is not a formula; the message says where.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "replace")
    return _parse(BufferedReader(cast(RawIOBase, BytesIO(content))), name)


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be opened ({reason}); name a file to read") from error


def _parse(stream: BufferedReader, name: str) -> Formula:
    try:
        source = read_passages(stream, name)
        for passage in source:
            if passage.text.strip(BLANK):
                header, rest = split_header(passage)
                collector = _Collector(rest, header)
                for body in _body(chain([rest], source), header):
                    collector.feed(body)
                return collector.finish()
    except CapacityError:
        raise
    except MemoryError as error:
        raise DataError(f"{name}: the formula does not fit in memory") from error
    raise DataError(f"{name}: holds no formula, it is empty or only has comments")


def _body(source: Iterator[Passage], header: Header) -> Iterator[Passage]:
    """The passages up to SATLIB's trailer, and certainly without another header."""
    for passage in source:
        lines = b"\n" + passage.text
        header_again = _HEADER.search(lines) if b"p" in lines else None
        if header_again:
            raise passage.refusal(
                header_again.end() - 2,
                f"starts a second header, after the one in line {header.line}; keep one of them"
                if header.line is not None
                else "starts a header, but clauses come before it; move it to the top",
            )
        trailer = _TRAILER.search(lines) if b"%" in lines and not header.weighted else None
        if trailer:
            end = trailer.end() - 1
            yield Passage(passage.name, passage.line, passage.text[: end - 1])
            _refuse_more(chain([passage.from_offset(end)], source))
            return
        yield passage


def _refuse_more(source: Iterator[Passage]) -> None:
    for passage in source:
        text = passage.text.lstrip(BLANK + b"0")
        if text:
            raise passage.refusal(
                len(passage.text) - len(text), "comes after the '%' that ends the file; remove it"
            )


class _Collector:
    """Joins the clauses of consecutive passages to a formula."""

    def __init__(self, start: Passage, header: Header) -> None:
        self._header = header
        self._name = start.name
        # The text not parsed yet, from the start of a clause on, and its first line.
        self._pending = bytearray()
        self._line = start.line
        self._enough = PIECE_BYTES
        self._num_clauses = self._num_literals = 0
        self._checked = 0  # literals and clauses known to fit in memory
        self._total_weight = 0
        self._lengths = [np.zeros(0, dtype=np.int32)]
        self._literals = [np.zeros(0, dtype=np.int32)]
        self._weights = [np.zeros(0, dtype=np.int64)]
        self._hard = [np.zeros(0, dtype=np.bool_)]

    def feed(self, passage: Passage) -> None:
        """Take the next lines."""
        for start in range(0, len(passage.text), PIECE_BYTES):
            self._pending += passage.text[start : start + PIECE_BYTES]
            if len(self._pending) >= self._enough:
                # The last word may continue in the next piece.
                self._take(len(self._pending.rstrip(_WORD_BYTES)))
                # Doubled, a clause over many pieces is still parsed in linear time.
                self._enough = max(PIECE_BYTES, 2 * len(self._pending))

    def finish(self) -> Formula:
        """The formula of all clauses, once the text is over."""
        self._take(len(self._pending))
        text, header = bytes(self._pending.rstrip(BLANK)), self._header
        if text:
            last = len(text) - len(text.split()[-1])
            raise Passage(self._name, self._line, text).refusal(
                last, "is the last word, but no 0 closes its clause; is it cut off?"
            )
        if header.num_clauses is not None and self._num_clauses < header.num_clauses:
            raise refusal(
                self._name,
                self._line,
                f"the file ends after {self._num_clauses} clauses, but line {header.line} "
                f"announces {header.num_clauses}; fetch it again, or correct the header",
            )
        literals = np.concatenate(self._literals)
        num_variables = header.num_variables
        if num_variables is None:
            num_variables = (int(literals.max(initial=-1)) + 2) // 2
        starts = row_starts(np.concatenate(self._lengths))
        if not header.weighted:
            return Formula(num_variables, starts, literals, np.ones(starts.size - 1, np.int64))
        weights, hard = np.concatenate(self._weights), np.concatenate(self._hard)
        return Formula(num_variables, starts, literals, weights, hard)

    def _take(self, length: int) -> None:
        """Parse the clauses closed in this many bytes of the pending text, and keep the rest."""
        passage = Passage(self._name, self._line, bytes(self._pending[:length]))
        clauses = parse_clauses(passage, self._header)
        self._count(passage, clauses)
        self._check_memory(clauses.literals.size)
        self._lengths.append(clauses.lengths)
        self._literals.append(clauses.literals)
        if clauses.weights is not None and clauses.hard is not None:
            soft = ~clauses.hard
            self._weigh(passage, clauses.offsets[soft], clauses.weights[soft])
            self._weights.append(clauses.weights)
            self._hard.append(clauses.hard)
        self._line = passage.line_at(clauses.end)
        del self._pending[: clauses.end]

    def _check_memory(self, num_literals: int) -> None:
        """What is read must fit once more when it is joined; asked now and then."""
        self._num_literals += num_literals
        if self._num_clauses + self._num_literals >= self._checked + CHECK_EVERY:
            self._checked = self._num_clauses + self._num_literals
            check_formula(
                f"{self._name}: after line {self._line}",
                self._num_clauses,
                self._num_literals,
                "take a machine with more, or a smaller file",
            )

    def _count(self, passage: Passage, clauses: Clauses) -> None:
        limit, header = self._header.num_clauses, self._header
        if limit is not None and self._num_clauses + clauses.lengths.size > limit:
            raise passage.refusal(
                int(clauses.offsets[limit - self._num_clauses]),
                f"starts clause {limit + 1}, but line {header.line} announces {limit}; correct "
                "the header, or a 0 that is inside a clause, since every 0 closes one",
            )
        self._num_clauses += clauses.lengths.size

    def _weigh(
        self, passage: Passage, offsets: NDArray[np.int64], weights: NDArray[np.int64]
    ) -> None:
        before = self._total_weight
        self._total_weight += sum_exactly(weights)
        if self._total_weight > MAX_TOTAL_WEIGHT:
            sums = enumerate(accumulate(weights.tolist(), initial=before))
            index = next(count for count, value in sums if value > MAX_TOTAL_WEIGHT) - 1
            raise passage.refusal(
                int(offsets[index]),
                f"brings the sum of weights above {MAX_TOTAL_WEIGHT}; scale the weights down",
            )
