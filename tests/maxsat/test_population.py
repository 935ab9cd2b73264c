import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardstep.errors import DataError
from hardstep.maxsat import random_ksat
from hardstep.maxsat.population import population_costs

from .test_objective import EXAMPLES, formulas, recounted


@EXAMPLES
@given(formulas(), st.integers(1, 150), st.integers(0, 99))
def test_costs_are_those_of_one_assignment_at_a_time(formula, num, seed):
    assignments = np.random.default_rng(seed).random((num, formula.num_variables)) < 0.5
    found = population_costs(formula, assignments)
    assert found.tolist() == [recounted(formula, row) for row in assignments]


def test_clauses_without_weights_are_counted():
    formula = random_ksat(500, seed=1)
    assignments = np.random.default_rng(0).random((70, 500)) < 0.5
    expected = [formula.falsified(row)[0] for row in assignments]
    assert population_costs(formula, assignments).tolist() == expected


def test_rows_of_another_length_are_refused():
    with pytest.raises(DataError, match="rows of 10 booleans"):
        population_costs(random_ksat(10, seed=0), np.zeros((3, 9), dtype=bool))
