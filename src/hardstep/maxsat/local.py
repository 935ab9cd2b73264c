"""Local search by flips: probSAT, a baseline for PolyStep and the polish after it.

Balint and Schöning (2012): take a random falsified clause, and flip one of its variables with
probability proportional to (1 + b)^−exponent, where b is the cost of the clauses that only this
variable satisfies (in units of the mean cost). What a flip changes is kept up to date: literals
that hold per clause, the sum (exclusive or) of their variables, and b.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardstep._compiled import jit
from hardstep.errors import ConfigError
from hardstep.maxsat.formula import Formula
from hardstep.maxsat.objective import Standing, plain_costs
from hardstep.maxsat.occurring import keep_occurring
from hardstep.maxsat.pieces import run_in_turn
from hardstep.maxsat.sizes import check_local
from hardstep.seeds import derive

# Tuned at 4.27 clauses per variable (2.06 is published for satisfiable formulas) and at 9: where
# many clauses stay falsified, it pays to be greedier.
EXPONENT, CROWDED_EXPONENT, CROWDED = 2.8, 4.0, 6.0
BLOCK = 1 << 17  # flips between two looks at the clock
BLOCK_READS = 1 << 24  # literals and occurrences looked at before Ctrl-C is heard

Report = Callable[[Standing, NDArray[np.bool_]], None]
_Flipping = tuple[
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.float64],
    float,
    float,
    int,
]


class LocalResult(NamedTuple):
    """What local search found."""

    standing: Standing
    assignment: NDArray[np.bool_]
    flips: int
    seconds: float
    interrupted: bool = False  # by Ctrl-C


class _Work(NamedTuple):
    """What the search keeps; arrays are changed in place."""

    values: NDArray[np.bool_]
    clauses: NDArray[np.int32]  # (clauses, 2): true literals, exclusive or of their variables
    breaks: NDArray[np.float64]  # cost of clauses that only this variable satisfies
    falsified: NDArray[np.int32]  # a list of clauses
    place: NDArray[np.int32]  # of each clause in that list, −1 if it is not there
    best: NDArray[np.bool_]  # the best assignment
    trail: NDArray[np.int32]  # variables flipped since
    counters: NDArray[np.int64]  # falsified, trail (−1: longer than fits), random state, reads left
    costs: NDArray[np.float64]  # now, best


def local_search(
    formula: Formula,
    start: NDArray[np.bool_],
    seed: int = 0,
    *,
    seconds: float | None = None,
    flips: int | None = None,
    target: Standing | None = None,
    exponent: float | None = None,
    report: Report | None = None,
) -> LocalResult:
    """Search from an assignment until the time, the flips or the target is reached.

    Args:
        formula: The clauses.
        start: Where to begin.
        seed: Fixes the flips; how many fit into `seconds` is up to the machine.
        seconds: Of wall-clock, checked every 131,072 flips.
        flips: At most.
        target: Stop when the best assignment is at least as good.
        exponent: How strongly a flip that breaks clauses is avoided; by default 2.8, and 4 above
            six clauses per variable.
        report: Called with every better assignment that a block of flips has found.
    """
    if seconds is None and flips is None:
        raise ConfigError("local_search: give seconds or flips, or it would never end")
    began = time.perf_counter()
    check_local(formula)
    occurring = keep_occurring(formula)
    work = _begin(occurring.formula, occurring.select(formula.check_assignment(start)), seed)
    flipping = _flipping(occurring.formula, exponent)
    best, values = _standing(occurring.formula, work.best), work.best.copy()
    if report is not None:
        report(best, occurring.spread(values))
    done, known, interrupted = 0, float(work.costs[1]), False
    while not (interrupted or _is_over(best, target, began, seconds, done, flips)):
        block = BLOCK if flips is None else min(BLOCK, flips - done)
        try:
            block_end = done + block
            while done < block_end and work.counters[0]:
                work.counters[3] = BLOCK_READS
                done += _run(*flipping, work, block_end - done)
        except KeyboardInterrupt:  # raised between two calls; the best is kept and returned
            interrupted = True
        if work.counters[0] == 0:  # whatever the rounded sum of costs says
            work.best[:], work.costs[1] = work.values, -np.inf
        if work.costs[1] < known:
            known = float(work.costs[1])
            standing = _standing(occurring.formula, work.best)
            if standing < best:  # sums of large weights are rounded while flipping
                best, values = standing, work.best.copy()
                if report is not None:
                    report(best, occurring.spread(values))
    spent = time.perf_counter() - began
    return LocalResult(best, occurring.spread(values), done, spent, interrupted)


def _is_over(
    best: Standing,
    target: Standing | None,
    began: float,
    seconds: float | None,
    done: int,
    flips: int | None,
) -> bool:
    late = seconds is not None and time.perf_counter() - began >= seconds
    good = best == (0, 0) or (target is not None and best <= target)
    return good or late or (flips is not None and done >= flips)


def _flipping(formula: Formula, exponent: float | None) -> _Flipping:
    """What `_run` is told of the formula, and of how to flip."""
    costs = plain_costs(formula)
    if exponent is None:
        crowded = formula.num_clauses > CROWDED * formula.num_variables
        exponent = CROWDED_EXPONENT if crowded else EXPONENT
    return (
        formula.starts,
        formula.literals,
        formula.occurrence_starts,
        formula.occurrences,
        costs,
        exponent,
        float(costs.mean()) if costs.size else 1.0,
        int(formula.lengths.max(initial=1)),
    )


def _standing(formula: Formula, assignment: NDArray[np.bool_]) -> Standing:
    weight, hard = formula.cost(assignment)
    return Standing(hard, weight)


def _begin(formula: Formula, start: NDArray[np.bool_], seed: int) -> _Work:
    """The state at an assignment."""
    values = np.array(start, dtype=np.bool_)
    falsified = formula.is_falsified(values)  # checks the assignment, too
    costs = plain_costs(formula)
    num, listed = formula.num_clauses, np.flatnonzero(falsified)
    place = np.full(num, -1, np.int32)
    place[listed] = np.arange(listed.size)
    work = _Work(
        values,
        np.zeros((num, 2), np.int32),
        np.zeros(formula.num_variables),
        np.concatenate((listed, np.zeros(num - listed.size, np.int64))).astype(np.int32),
        place,
        values.copy(),
        np.zeros(max(1, formula.num_variables), np.int32),
        np.array([listed.size, 0, derive(seed, "local search") | 1, 0], np.int64),
        np.full(2, float(np.broadcast_to(costs, num)[falsified].sum())),
    )
    run_in_turn(_count, num, formula.literals.size, formula.starts, formula.literals, costs, work)
    return work


@jit
def _count(
    first: int,
    last: int,
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    costs: NDArray[np.float64],
    work: _Work,
) -> None:
    for c in range(first, last):
        count, variables = 0, 0
        for k in range(starts[c], starts[c + 1]):
            variable = literals[k] >> 1
            if work.values[variable] != (literals[k] & 1):
                count += 1
                variables ^= variable
        work.clauses[c, 0], work.clauses[c, 1] = count, variables
        if count == 1:
            work.breaks[variables] += costs[c] if costs.size > 1 else costs[0]


@jit
def _random(state: NDArray[np.int64]) -> float:
    """Uniform in [0, 1): xorshift64*, whose state is the third counter."""
    x = np.uint64(state[2])
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[2] = np.int64(x)
    return (x * np.uint64(2685821657736338717) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def _choose(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    work: _Work,
    table: NDArray[np.float64],
    exponent: float,
    unit: float,
    weights: NDArray[np.float64],
) -> int:
    """A variable of a random falsified clause; −1 if the clause is empty."""
    clause = work.falsified[np.int64(_random(work.counters) * work.counters[0])]
    first, last = starts[clause], starts[clause + 1]
    if first == last:
        return -1
    work.counters[3] -= last - first
    total = 0.0
    for k in range(first, last):
        broken = max(work.breaks[literals[k] >> 1] / unit, 0.0)  # sums may be rounded
        whole = np.int64(broken)
        if whole == broken and whole < table.size:
            weights[k - first] = table[whole]
        else:
            weights[k - first] = (1.0 + broken) ** -exponent
        total += weights[k - first]
    left = _random(work.counters) * total
    for k in range(first, last):
        left -= weights[k - first]
        if left < 0:
            return int(literals[k] >> 1)
    return int(literals[last - 1] >> 1)


@jit
def _flip(
    variable: int,
    literals: NDArray[np.int32],
    starts: NDArray[np.int64],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
    work: _Work,
) -> None:
    """Flip a variable and bring everything up to date."""
    value = not work.values[variable]
    work.values[variable] = value
    work.counters[3] -= first[variable + 1] - first[variable]
    for k in range(first[variable], first[variable + 1]):
        clause, negated = occurrences[k] >> 1, occurrences[k] & 1
        cost = costs[clause] if costs.size > 1 else costs[0]
        count = work.clauses[clause, 0]
        work.clauses[clause, 1] ^= variable
        if value != negated:  # the literal holds now
            work.clauses[clause, 0] = count + 1
            if count == 0:
                work.breaks[variable] += cost
                work.costs[0] -= cost
                _unlist(clause, work)
            elif count == 1:
                work.breaks[work.clauses[clause, 1] ^ variable] -= cost
        else:
            work.clauses[clause, 0] = count - 1
            if count == 1:
                work.breaks[variable] -= cost
                work.costs[0] += cost
                work.place[clause] = work.counters[0]
                work.falsified[work.counters[0]] = clause
                work.counters[0] += 1
            elif count == 2:
                work.breaks[work.clauses[clause, 1]] += cost


@jit
def _unlist(clause: int, work: _Work) -> None:
    """Take a clause off the list of falsified ones: the last one takes its place."""
    work.counters[0] -= 1
    last, place = work.falsified[work.counters[0]], work.place[clause]
    work.falsified[place] = last
    work.place[last] = place
    work.place[clause] = -1


@jit
def _keep(work: _Work) -> None:
    """Make the current assignment the best one: redo the flips since, or copy."""
    if work.counters[1] < 0:
        work.best[:] = work.values
    else:
        for k in range(work.counters[1]):
            work.best[work.trail[k]] ^= True
    work.counters[1] = 0
    work.costs[1] = work.costs[0]


@jit
def _run(
    starts: NDArray[np.int64],
    literals: NDArray[np.int32],
    first: NDArray[np.int64],
    occurrences: NDArray[np.int32],
    costs: NDArray[np.float64],
    exponent: float,
    unit: float,
    longest: int,
    work: _Work,
    flips: int,
) -> int:
    """Flip until all clauses hold or no reads are left, at most so often; returns how often."""
    table = np.power(1.0 + np.arange(64.0), -exponent)
    weights = np.empty(longest)
    for done in range(flips):
        if work.counters[0] == 0:
            return done
        variable = _choose(starts, literals, work, table, exponent, unit, weights)
        if variable < 0:  # nothing can be done about this clause
            continue
        _flip(variable, literals, starts, first, occurrences, costs, work)
        if work.counters[1] == work.trail.size:
            work.counters[1] = -1
        elif work.counters[1] >= 0:
            work.trail[work.counters[1]] = variable
            work.counters[1] += 1
        if work.costs[0] < work.costs[1]:
            _keep(work)
        if work.counters[3] < 0:
            return done + 1
    return flips
