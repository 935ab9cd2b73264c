"""The 'p' line, which says what a file holds and how much of it, and the clauses after it.

p cnf  variables clauses          literals 0: every clause is soft and weighs 1
p wcnf variables clauses [top]    weight literals 0: from `top` on, clauses are hard
no such line                      weight literals 0, or h literals 0 for a hard clause

A 0 always closes a clause: one that was meant as a literal cannot be told apart, and shows as a
clause too many. Clauses may share a line or span several.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardstep.maxsat.dimacs.text import (
    BLANK,
    MAX_NUMBER,
    Passage,
    Tokens,
    refusal,
    tokenize,
)
from hardstep.maxsat.formula import MAX_CLAUSES, MAX_TOTAL_WEIGHT, MAX_VARIABLES

_FORMS = "'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES [TOP]'"


@dataclass(frozen=True, slots=True)
class Header:
    """What the 'p' line announces; all None for the dialect that has none."""

    line: int | None = None
    num_variables: int | None = None
    num_clauses: int | None = None
    top: int | None = None
    weighted: bool = True


def split_header(passage: Passage) -> tuple[Header, Passage]:
    """The header at the start of the passage, which is not blank, and what comes after it.

    Raises:
        DataError: The first line starts with p, but is not a header.
    """
    start = len(passage.text) - len(passage.text.lstrip(BLANK))
    if passage.text[start : start + 1] != b"p":
        return Header(), passage
    end = passage.text.find(b"\n", start)
    end = len(passage.text) if end < 0 else end
    return _parse_header(passage, start, end), passage.from_offset(end)


def _parse_header(passage: Passage, start: int, end: int) -> Header:
    line = passage.line_at(start)
    words = passage.text[start:end].split()
    kind, numbers = b" ".join(words[:2]), words[2:]
    if kind not in (b"p cnf", b"p wcnf") or len(numbers) not in (2, 2 + (kind == b"p wcnf")):
        shown = passage.text[start:end].strip()[:60].decode("ascii", "backslashreplace")
        raise refusal(passage.name, line, f"'{shown}' is not a header; it must be {_FORMS}")
    return Header(
        line,
        _parse_number(passage.name, line, "variables", numbers[0], 0, MAX_VARIABLES),
        _parse_number(passage.name, line, "clauses", numbers[1], 0, MAX_CLAUSES),
        _parse_number(passage.name, line, "top", numbers[2], 1, MAX_NUMBER)
        if numbers[2:]
        else None,
        weighted=kind == b"p wcnf",
    )


def _parse_number(name: str, line: int, field: str, word: bytes, low: int, high: int) -> int:
    # Python refuses to convert thousands of digits, and none of these needs more than 20.
    value = int(word) if word.isdigit() and len(word) <= 20 else -1
    if not low <= value <= high:
        shown = word[:40].decode("ascii", "backslashreplace")
        raise refusal(
            name, line, f"'{shown}' stands for {field}, which must be whole, from {low} to {high}"
        )
    return value


class Clauses(NamedTuple):
    """The clauses closed within a passage, and where in it they start and end."""

    lengths: NDArray[np.int32]
    literals: NDArray[np.int32]
    weights: NDArray[np.int64] | None  # None: all weigh 1
    hard: NDArray[np.bool_] | None
    offsets: NDArray[np.int64]
    end: int


def parse_clauses(passage: Passage, header: Header) -> Clauses:
    """All clauses closed within the passage, which starts where a clause does.

    Raises:
        DataError: A word, a literal or a weight is not one of the format.
    """
    tokens = tokenize(passage, letters=header.line is None)
    closing = np.flatnonzero(tokens.magnitudes == 0)
    opening = np.zeros_like(closing)
    opening[1:] = closing[:-1] + 1
    is_literal = np.zeros(tokens.offsets.size, dtype=np.bool_)
    is_literal[: closing[-1] if closing.size else 0] = True
    is_literal[closing] = False
    weights = hard = None
    if header.weighted:
        weights, hard = _weights(passage, header, tokens, opening)
        is_literal[opening] = False
    literals = _literals(passage, header, tokens, is_literal)
    lengths = closing - opening - (1 if header.weighted else 0)
    end = int(tokens.ends[closing[-1]]) if closing.size else 0
    return Clauses(lengths.astype(np.int32), literals, weights, hard, tokens.offsets[opening], end)


def _literals(
    passage: Passage, header: Header, tokens: Tokens, is_literal: NDArray[np.bool_]
) -> NDArray[np.int32]:
    if tokens.letters is not None and (tokens.letters & is_literal).any():
        offset = tokens.offsets[np.argmax(tokens.letters & is_literal)]
        raise passage.refusal(offset, "starts a hard clause, but no 0 closes the clause before it")
    variables = tokens.magnitudes[is_literal]
    limit = MAX_VARIABLES if header.num_variables is None else header.num_variables
    if variables.max(initial=0) > limit:
        offset = tokens.offsets[np.argmax(is_literal & (tokens.magnitudes > limit))]
        raise passage.refusal(
            offset,
            f"is beyond the {limit} variables that line {header.line} announces; correct either"
            if header.line is not None
            else f"is beyond the {limit} variables a formula can have",
        )
    literals = (variables - np.uint64(1)).astype(np.int32)
    literals <<= 1
    literals |= tokens.negative[is_literal]
    return literals


def _weights(
    passage: Passage, header: Header, tokens: Tokens, opening: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Weights of the clauses, 1 for hard ones, and which these are."""
    weights, negative = tokens.magnitudes[opening], tokens.negative[opening]
    if tokens.letters is not None:
        hard = tokens.letters[opening]
    else:
        hard = np.zeros(opening.size, dtype=np.bool_)
        if header.top is not None:
            hard = (weights >= header.top) & ~negative
    fault = negative | (weights == 0) | (~hard & (weights > MAX_TOTAL_WEIGHT))
    if fault.any():
        hint = "; for a CNF file, add the line 'p cnf VARIABLES CLAUSES'"
        raise passage.refusal(
            tokens.offsets[opening[np.argmax(fault)]],
            "starts a clause, so it is its weight, which must be whole and from 1 to "
            f"{MAX_TOTAL_WEIGHT}{hint if header.line is None else ''}",
        )
    return np.where(hard, np.uint64(1), weights).astype(np.int64), hard
