"""What is listed once for a formula: where variables occur, and which clauses a particle shares."""

import numpy as np
from numpy.typing import NDArray

from hardstep._compiled import jit
from hardstep.maxsat.normal import row_starts
from hardstep.maxsat.pieces import run_in_turn


def count_occurrences(num_variables: int, literals: NDArray[np.int32]) -> NDArray[np.int64]:
    """(variables + 1,) where the occurrences of each variable start in the list of all."""
    counts = np.zeros(num_variables, np.int64)
    run_in_turn(_count, literals.size, literals.size, literals, counts)
    return row_starts(counts)


@jit
def _count(first: int, last: int, literals: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    for k in range(first, last):
        counts[literals[k] >> 1] += 1


def list_occurrences(
    starts: NDArray[np.int64], literals: NDArray[np.int32], first: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Clauses by variable, in increasing order: 2c, or 2c + 1 where it is negated."""
    listed = np.empty(literals.size, np.int32)
    num = starts.size - 1
    run_in_turn(_list, num, literals.size, starts, literals, first[:-1].copy(), listed)
    return listed


@jit
def _list(
    first_clause: int,
    last_clause: int,
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    following: NDArray[np.int64],
    listed: NDArray[np.int32],
) -> None:
    for c in range(first_clause, last_clause):
        for k in range(starts[c], starts[c + 1]):
            variable = literals[k] >> 1
            listed[following[variable]] = 2 * c + (literals[k] & 1)
            following[variable] += 1


def list_shared(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    particle_of: NDArray[np.int32],
    num_particles: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Clauses that hold several variables of one particle: where each particle's start, and all.

    A clause that does so for two particles is listed under both.
    """
    counts, nothing = np.zeros(num_particles, np.int64), np.empty(0, np.int32)
    seen = np.empty((num_particles, 2), np.int32)
    arguments = (starts, literals, particle_of, seen)
    num = starts.size - 1
    seen.fill(-1)
    run_in_turn(_share, num, literals.size, *arguments, counts, nothing)
    first = row_starts(counts)
    listed = np.empty(first[-1], np.int32)
    if listed.size:
        seen.fill(-1)
        run_in_turn(_share, num, literals.size, *arguments, first[:-1].copy(), listed)
    return first, listed


@jit
def _share(
    first_clause: int,
    last_clause: int,
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    particle_of: NDArray[np.int32],
    seen: NDArray[np.int32],
    following: NDArray[np.int64],
    listed: NDArray[np.int32],
) -> None:
    """Count each particle's clauses in `following`, and list them if there is room.

    `seen` has, for each particle, the clause that was last found to hold one of its variables,
    and the one that was last found to hold several.
    """
    for c in range(first_clause, last_clause):
        for k in range(starts[c], starts[c + 1]):
            particle = particle_of[literals[k] >> 1]
            if seen[particle, 0] != c:
                seen[particle, 0] = c
            elif seen[particle, 1] != c:
                seen[particle, 1] = c
                if listed.size:
                    listed[following[particle]] = c
                following[particle] += 1
