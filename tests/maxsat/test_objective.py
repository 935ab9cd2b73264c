import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep import Full, Orthoplex, PolyStep, Simplex
from hardstep.errors import ConfigError, DataError
from hardstep.maxsat import Formula, Search, local_search, random_ksat
from hardstep.maxsat.objective import (
    MaxSat,
    keeps_coordinates,
    plain_costs,
    population_costs,
)
from hardstep.subspaces import BoundSubspace, IdentityMap, Layout

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def formulas(draw):
    """Small formulas of mixed length, with weights and now and then hard clauses."""
    num = draw(st.integers(1, 10))
    literal = st.integers(1, num).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, max_size=5), min_size=1, max_size=25))
    weights = draw(st.lists(st.integers(1, 9), min_size=len(clauses), max_size=len(clauses)))
    hard = draw(st.lists(st.booleans(), min_size=len(clauses), max_size=len(clauses)))
    return Formula.from_lists(clauses, num, weights, hard)


def recounted(formula, assignment):
    weight, hard = formula.cost(assignment)
    return weight + hard * (formula.total_weight + 1)


@EXAMPLES
@given(formulas(), st.integers(1, 4), st.booleans(), st.integers(1, 2), st.integers(0, 99))
def test_costs_of_candidates_are_those_of_a_full_recount(formula, dim, cross, probes, seed):
    point = torch.randn(formula.num_variables, generator=torch.Generator().manual_seed(seed))
    polytope = Orthoplex(dim) if cross else Simplex(dim)
    opt = PolyStep({"x": point}, subspace=Full(), polytope=polytope, num_probes=probes, seed=seed)
    candidates = opt.candidates(opt.propose())
    found = MaxSat(formula).losses(candidates)
    for number, loss in enumerate(found.tolist()):
        assignment = candidates.parameters(number)["x"].numpy() >= 0
        assert loss == recounted(formula, assignment)


def test_a_large_formula_agrees_with_a_recount():
    formula = random_ksat(3000, seed=5)
    opt = PolyStep({"x": torch.linspace(-1, 1, 3000)}, subspace=Full(), polytope=Simplex(2))
    candidates = opt.candidates(opt.propose())
    found = MaxSat(formula).losses(candidates)
    for number in range(0, len(candidates), 97):
        assignment = candidates.parameters(number)["x"].numpy() >= 0
        assert float(found[number]) == formula.cost(assignment)[0]


def test_steps_lower_the_cost():
    formula = random_ksat(500, seed=3)
    start = torch.randn(500, generator=torch.Generator().manual_seed(1))
    before = formula.cost(start.numpy() >= 0)[0]
    opt = PolyStep({"x": start}, subspace=Full(), polytope=Simplex(2), temperature=0.5)
    for _ in range(30):
        opt.step(objective=MaxSat(formula))
    assert formula.cost(start.numpy() >= 0)[0] < 0.5 * before


def test_a_hard_clause_costs_more_than_all_soft_ones():
    formula = Formula.from_lists([[1], [-1], [2]], 2, [3, 1, 4], [False, True, False])
    assert plain_costs(formula).tolist() == [3.0, 8.0, 4.0]


def test_costs_of_another_number_of_clauses_are_refused():
    formula = random_ksat(10, seed=0)
    with pytest.raises(ConfigError, match="one entry for each of 43 clauses"):
        MaxSat(formula, np.ones(3))


def test_a_point_of_another_size_is_refused():
    opt = PolyStep({"x": torch.zeros(9)}, subspace=Full(), polytope=Simplex(2))
    with pytest.raises(ConfigError, match="one number for each of 10 variables"):
        opt.step(objective=MaxSat(random_ksat(10, seed=0)))


@EXAMPLES
@given(formulas(), st.integers(1, 150), st.integers(0, 99))
def test_costs_are_those_of_one_assignment_at_a_time(formula, num, seed):
    assignments = np.random.default_rng(seed).random((num, formula.num_variables)) < 0.5
    found = population_costs(formula, assignments)
    assert found.tolist() == [recounted(formula, row) for row in assignments]


def test_clauses_without_weights_are_counted():
    formula = random_ksat(500, seed=1)
    assignments = np.random.default_rng(0).random((70, 500)) < 0.5
    expected = [formula.cost(row)[0] for row in assignments]
    assert population_costs(formula, assignments).tolist() == expected


def test_rows_of_another_length_are_refused():
    with pytest.raises(DataError, match="rows of 10 booleans"):
        population_costs(random_ksat(10, seed=0), np.zeros((3, 9), dtype=bool))


class Swapped(IdentityMap):
    """Coordinates that are not the tensor's numbers."""

    def expand(self, coordinates):
        return super().expand(coordinates.flip(-1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1, 255, 256, 257, 70_000])
def test_coordinates_are_told_apart_whatever_a_float_can_hold(dtype, size):
    """A bfloat16 counts to 256 only, as a float32 does to 2**24."""
    layout = Layout({"x": torch.zeros(size, dtype=dtype)})
    assert keeps_coordinates(Full().bind(layout, 2, 0), size)
    swapped = BoundSubspace(layout, tuple(Swapped(spec) for spec in layout))
    assert keeps_coordinates(swapped, size) == (size == 1)


def test_more_variables_than_a_float32_counts_can_be_searched():
    size = 2**24 + 3
    assert keeps_coordinates(Full().bind(Layout({"x": torch.zeros(size)}), 2, 0), size)


@pytest.mark.parametrize("weight", [2**53 + 1, 2**62 - 1])
def test_weights_that_a_float_rounds_are_counted_exactly(weight):
    formula = Formula.from_lists([[1], [-1]], 1, [weight, weight])
    assert MaxSat(formula).stand(np.zeros(1, bool)) == (0, weight)


@EXAMPLES
@given(st.lists(st.integers(1, 2**59), min_size=8, max_size=8), st.integers(0, 99))
def test_costs_of_huge_weights_are_exact_whatever_is_searched(weights, seed):
    literals = np.random.default_rng(seed).choice([-3, -2, -1, 1, 2, 3], (8, 2)).tolist()
    formula = Formula.from_lists(literals, 3, weights)
    found = Search(formula, seed).run(3)
    assert formula.cost(found.assignment) == (found.standing.weight, 0)
    polished = local_search(formula, found.assignment, seed, flips=50)
    assert formula.cost(polished.assignment) == (polished.standing.weight, 0)
    assert polished.standing <= found.standing
