from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardstep.errors import ConfigError
from hardstep.maxsat import Formula, local, random_ksat
from hardstep.maxsat.local import local_search
from hardstep.maxsat.objective import Standing

from .test_objective import EXAMPLES, formulas


def standing(formula, assignment):
    weight, hard = formula.cost(assignment)
    return Standing(hard, weight)


def optimum(formula):
    values = product([False, True], repeat=formula.num_variables)
    return min(standing(formula, np.array(v, dtype=bool)) for v in values)


def from_zeros(formula, seed=0, **limits):
    return local_search(formula, np.zeros(formula.num_variables, dtype=bool), seed, **limits)


@EXAMPLES
@given(formulas(), st.integers(0, 99), st.integers(0, 3000))
def test_the_best_assignment_is_kept_however_long_the_search_lasts(formula, seed, flips):
    start = np.random.default_rng(seed).random(formula.num_variables) < 0.5
    seen = []
    found = local_search(
        formula, start, seed, flips=flips, report=lambda s, a: seen.append((s, a.copy()))
    )
    assert found.standing == standing(formula, found.assignment)
    assert found.standing <= standing(formula, start)
    assert found.flips <= flips
    assert seen[-1][0] == found.standing
    assert all(s == standing(formula, a) for s, a in seen)


@pytest.mark.parametrize("seed", range(5))
def test_small_formulas_are_solved_to_their_optimum(seed):
    formula = random_ksat(10, ratio=8.0, seed=seed)
    assert from_zeros(formula, seed, flips=20_000).standing == optimum(formula)


def test_a_satisfiable_formula_is_satisfied_and_the_search_ends_there():
    formula = random_ksat(300, ratio=3.8, seed=2, planted=True)
    found = from_zeros(formula, 1, flips=5_000_000)
    assert found.standing == (0, 0)
    assert found.flips < 5_000_000
    assert formula.cost(found.assignment) == (0, 0)


def test_flips_avoid_breaking_heavy_clauses():
    """x1 wants to be false by 1 and true by 100: the heavy clause must win."""
    formula = Formula.from_lists([[1], [-1]], 1, [100, 1])
    assert from_zeros(formula, flips=50).standing == (0, 1)


def test_hard_clauses_come_first():
    formula = Formula.from_lists([[1, 2], [-1], [-2]], 2, [1, 9, 9], [True, False, False])
    assert from_zeros(formula, flips=100).standing == (0, 9)


def test_an_empty_clause_stays_falsified():
    formula = Formula.from_lists([[], [1]], 1)
    assert from_zeros(formula, flips=100).standing == (0, 1)


def test_the_same_seed_flips_the_same_variables():
    formula = random_ksat(500, seed=1)
    first, again, other = (from_zeros(formula, seed, flips=5000) for seed in (1, 1, 2))
    assert np.array_equal(first.assignment, again.assignment)
    assert not np.array_equal(first.assignment, other.assignment)


def test_the_target_ends_the_search():
    found = from_zeros(random_ksat(2000, seed=1), flips=10**9, target=Standing(0, 200))
    assert found.standing <= (0, 200)


def test_a_search_without_an_end_is_refused():
    with pytest.raises(ConfigError, match="give seconds or flips"):
        from_zeros(random_ksat(10, seed=0))


def test_interrupted_it_returns_the_best_so_far(monkeypatch):
    blocks = iter([False, False, True])
    run = local._run

    def pressed(*arguments):
        if next(blocks):
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(local, "_run", pressed)
    formula = random_ksat(500, seed=1)
    found = from_zeros(formula, flips=10**9)
    assert found.interrupted
    assert found.flips == 2 * local.BLOCK
    assert found.standing == standing(formula, found.assignment)
