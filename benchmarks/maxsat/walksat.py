"""WalkSAT/SKC, the second local search of the paper's table.

Selman, Kautz and Cohen (1994): take a random falsified clause. If one of its variables breaks no
other clause, flip that; else, with probability `noise`, flip a random one, and otherwise one that
breaks fewest. State and flips are those of `hardstep.maxsat.local`; only the choice differs.
"""

import time

import numpy as np
from numpy.typing import NDArray

from hardstep._compiled import jit
from hardstep.maxsat import Formula
from hardstep.maxsat.local import LocalResult, _begin, _flip, _keep, _random, _Work
from hardstep.maxsat.objective import Standing, plain_costs

NOISE = 0.567  # best for random 3-SAT at its threshold (Hoos and Stützle 2000)


def walksat(
    formula: Formula, start: NDArray[np.bool_], seed: int, flips: int, noise: float = NOISE
) -> LocalResult:
    """Search from an assignment until every clause holds or the flips are spent.

    Args:
        formula: All of its variables occur, and it has no hard clauses.
        start: Where to begin.
        seed: Fixes the flips.
        flips: At most.
        noise: Probability of a random flip where each would break a clause.
    """
    began = time.perf_counter()
    work = _begin(formula, formula.check_assignment(start), seed)
    shape = (formula.starts, formula.literals, formula.occurrence_starts, formula.occurrences)
    done = _run(*shape, plain_costs(formula), noise, work, flips)
    weight, hard = formula.cost(work.best)
    spent = time.perf_counter() - began
    return LocalResult(Standing(hard, weight), work.best.copy(), done, spent)


@jit
def _choose(
    starts: NDArray[np.int64], literals: NDArray[np.int32], work: _Work, noise: float
) -> int:
    """A variable of a random falsified clause."""
    clause = work.falsified[np.int64(_random(work.counters) * work.counters[0])]
    first, last = starts[clause], starts[clause + 1]
    least, ties, chosen = np.inf, 0, 0
    for k in range(first, last):
        variable = literals[k] >> 1
        if work.breaks[variable] < least:
            least, ties, chosen = work.breaks[variable], 1, variable
        elif work.breaks[variable] == least:
            ties += 1
            if _random(work.counters) * ties < 1:
                chosen = variable
    if least > 0 and _random(work.counters) < noise:
        chosen = literals[first + np.int64(_random(work.counters) * (last - first))] >> 1
    return chosen


@jit
def _run(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
    noise: float,
    work: _Work,
    flips: int,
) -> int:
    """Flip until all clauses hold, at most so often; returns how often."""
    for done in range(flips):
        if work.counters[0] == 0:
            return done
        variable = _choose(starts, literals, work, noise)
        _flip(variable, literals, starts, first, occurrences, costs, work)
        if work.counters[1] == work.trail.size:
            work.counters[1] = -1
        elif work.counters[1] >= 0:
            work.trail[work.counters[1]] = variable
            work.counters[1] += 1
        if work.costs[0] < work.costs[1]:
            _keep(work)
    return flips
