"""Clauses out of a passage of text, checked against the header.

cnf          literals 0
wcnf         weight literals 0, or h literals 0

A 0 always closes a clause: one that was meant as a literal cannot be told apart, and shows as a
clause too many. Clauses may share a line or span several.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardstep.maxsat.checks import MAX_TOTAL_WEIGHT, MAX_VARIABLES
from hardstep.maxsat.header import Header
from hardstep.maxsat.text import Passage
from hardstep.maxsat.tokens import Tokens, tokenise


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
    tokens = tokenise(passage, letters=header.line is None)
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
