"""The normal form of clauses, in which every variable occurs in a clause at most once.

x or x or y                       x or y, since a repeated literal says nothing new
x or not x or y                   dropped, since a tautology holds under every assignment

Most formulas are in normal form already, so one pass looks for clauses that are not, and only
those are rewritten. The order of clauses, and of literals within a clause, is kept.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_LITERAL_BITS = 31
_BLOCK_LITERALS = 1 << 15  # sorted in one go while looking for repetitions: they fit the cache


class Normal(NamedTuple):
    """Clauses in normal form, and which of the given ones were kept (None: all of them)."""

    starts: NDArray[np.int64]
    literals: NDArray[np.int32]
    kept: NDArray[np.bool_] | None


def normalize(starts: NDArray[np.int64], literals: NDArray[np.int32]) -> Normal:
    """Drop repeated literals and tautologies from clauses in compressed form."""
    suspects = _find_repeating(starts, literals)
    if suspects.size == 0:
        return Normal(starts, literals, None)
    lengths = np.diff(starts)
    suspect = np.zeros(lengths.size, dtype=np.bool_)
    suspect[suspects] = True
    places = np.flatnonzero(np.repeat(suspect, lengths))
    clauses = np.repeat(suspects, lengths[suspects])
    keys = (clauses << _LITERAL_BITS) | literals[places]
    order = np.argsort(keys, kind="stable")
    keys, places = keys[order], places[order]

    again = np.zeros(keys.size, dtype=np.bool_)
    again[1:] = keys[1:] == keys[:-1]
    distinct = keys[~again]
    # A literal and its negation differ in the lowest bit only, so sorting makes them neighbors.
    opposed = (distinct[1:] ^ distinct[:-1]) == 1
    tautology = np.zeros(lengths.size, dtype=np.bool_)
    tautology[distinct[1:][opposed] >> _LITERAL_BITS] = True

    keep = np.repeat(~tautology, lengths)
    keep[places[again]] = False
    lengths -= np.bincount(keys[again] >> _LITERAL_BITS, minlength=lengths.size)
    return Normal(row_starts(lengths[~tautology]), literals[keep], ~tautology)


def row_starts(lengths: NDArray[np.signedinteger]) -> NDArray[np.int64]:
    """Where each row of a compressed array starts, and where the last one ends."""
    starts = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _find_repeating(starts: NDArray[np.int64], literals: NDArray[np.int32]) -> NDArray[np.int64]:
    """The clauses in which a variable occurs more than once, in order."""
    found = [np.zeros(0, dtype=np.int64)]
    first, num_clauses = 0, starts.size - 1
    while first < num_clauses:
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_LITERALS, side="right")) - 1
        last = min(max(last, first + 1), num_clauses)
        block = literals[starts[first] : starts[last]] >> 1
        found.append(first + _find_repeating_rows(np.diff(starts[first : last + 1]), block))
        first = last
    return np.concatenate(found)


def _find_repeating_rows(
    lengths: NDArray[np.int64], variables: NDArray[np.int32]
) -> NDArray[np.int64]:
    """The rows in which a variable occurs more than once, in order; may sort in place."""
    if (lengths == lengths[0]).all():
        # The usual case, and a few times faster than sorting all rows together.
        rows = variables.reshape(lengths.size, -1)
        rows.sort(axis=1)
        return np.flatnonzero((rows[:, 1:] == rows[:, :-1]).any(axis=1))
    keys = np.repeat(np.arange(lengths.size) << _LITERAL_BITS, lengths)
    keys |= variables
    keys.sort()
    twice = keys[1:][keys[1:] == keys[:-1]]
    return np.unique(twice >> _LITERAL_BITS)
