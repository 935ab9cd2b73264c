"""Variables that no clause uses change nothing, cost nothing, and are false in the answer."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardstep.errors import CapacityError
from hardstep.maxsat import Formula, Search, local_search, random_ksat
from hardstep.maxsat.dimacs import loads
from hardstep.maxsat.occurring import keep_occurring

from .naive import EXAMPLES, as_lists, formula_of, plains


def stretch(formula, places, num_variables):
    """The formula with variable v at places[v]."""
    literals = 2 * places[formula.literals >> 1] + (formula.literals & 1)
    return Formula(num_variables, formula.starts, literals, formula.weights, formula.hard)


@EXAMPLES
@given(plains(), st.integers(0, 300))
def test_renumbered_clauses_cost_the_same(plain, more):
    formula = formula_of(plain._replace(num_variables=plain.num_variables + more))
    occurring = keep_occurring(formula)
    small = occurring.formula
    values = np.random.default_rng(more).random(small.num_variables) < 0.5
    whole = occurring.spread(values)
    assert whole.shape == (formula.num_variables,)
    assert small.cost(values) == formula.cost(whole)
    assert np.array_equal(occurring.select(whole), values)
    used = {abs(x) for clause in as_lists(formula).clauses for x in clause}
    assert small.num_variables == max(1, len(used))
    assert whole.sum() == values.sum()


@pytest.mark.parametrize("stride", [2, 40])
def test_a_search_does_not_notice_variables_that_do_not_occur(stride):
    formula = random_ksat(60, seed=3)
    places = stride * np.arange(60) + 1
    wide = stretch(formula, places, stride * 60 + 7)
    for polish in (False, True):
        found, same = Search(wide, 2).run(10), Search(formula, 2).run(10)
        if polish:
            found = local_search(wide, found.assignment, 1, flips=500)
            same = local_search(formula, same.assignment, 1, flips=500)
        assert found.standing == same.standing
        assert np.array_equal(found.assignment[places], same.assignment)
        assert found.assignment.sum() == same.assignment.sum()


def test_a_billion_variables_that_do_not_occur_take_no_memory():
    formula = loads("p cnf 1000000000 3\n1 -5 0\n999999999 7 0\n-1 -7 0\n")
    tracemalloc.start()
    try:
        search = Search(formula)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 10**6
    found = search.run(20)
    assert found.stopped == "satisfied"
    assert found.assignment.shape == (10**9,)
    assert found.assignment[[4, 0, 999999998, 6]].sum() >= 1


def test_a_formula_whose_variables_never_occur_has_its_constant_cost():
    formula = Formula.from_lists([[], []], 9)
    assert Search(formula).run(2).standing == (0, 2)
    assert local_search(formula, np.ones(9, bool), flips=10).standing == (0, 2)


def test_what_does_not_fit_in_memory_is_refused_with_the_numbers(monkeypatch):
    formula = random_ksat(1000, seed=0)
    monkeypatch.setattr("hardstep._memory.free_bytes", lambda: 100_000)
    with pytest.raises(CapacityError, match=r"1,000 variables in 4,270 clauses need about .* free"):
        Search(formula)
    with pytest.raises(CapacityError, match="local_search: 1,000 variables"):
        local_search(formula, np.zeros(1000, bool), flips=1)
    with pytest.raises(CapacityError, match="4,270 clauses with 12,810 literals need about"):
        random_ksat(1000, seed=0)
    monkeypatch.setattr("hardstep.maxsat.dimacs.reader.CHECK_EVERY", 1000)
    with pytest.raises(CapacityError, match="text: after line .* smaller file"):
        loads("1 2 3 0\n" * 4000)
