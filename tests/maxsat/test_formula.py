import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardstep.errors import DataError
from hardstep.maxsat import Formula
from tests.maxsat.naive import EXAMPLES, Plain, as_lists, falsified, formula_of, normal, plains


@EXAMPLES
@given(plains(max_variables=6))
def test_the_cost_of_every_assignment_is_that_of_the_clauses_as_given(plain):
    formula = formula_of(plain)
    for values in itertools.product([False, True], repeat=plain.num_variables):
        assert formula.cost(np.array(values)) == falsified(plain, values)


@EXAMPLES
@given(plains())
def test_clauses_are_held_in_normal_form_and_in_order(plain):
    formula = formula_of(plain)
    assert as_lists(formula) == normal(plain)
    assert formula.num_tautologies == len(plain.clauses) - formula.num_clauses


@EXAMPLES
@given(plains())
def test_the_index_lists_every_literal_by_variable_in_the_order_of_clauses(plain):
    formula = formula_of(plain)
    expected = [[] for _ in range(formula.num_variables)]
    for index, clause in enumerate(as_lists(formula).clauses):
        for literal in clause:
            expected[abs(literal) - 1].append(2 * index + (literal < 0))
    bounds = formula.occurrence_starts
    found = [
        formula.occurrences[bounds[v] : bounds[v + 1]].tolist()
        for v in range(formula.num_variables)
    ]
    assert found == expected
    assert bounds[-1] == formula.occurrences.size


@EXAMPLES
@given(plains(max_variables=5), st.integers(0, 31))
def test_the_satisfied_share_counts_every_clause_given_once(plain, bits):
    values = [bool(bits >> v & 1) for v in range(plain.num_variables)]
    ones = Plain(plain.num_variables, plain.clauses, [1] * len(plain.clauses))
    total = len(plain.clauses)
    expected = 1 - falsified(ones, values)[0] / total if total else 1.0
    assert formula_of(plain).satisfied_share(np.array(values)) == pytest.approx(expected, abs=1e-12)


def test_a_repeated_literal_shortens_its_clause_and_a_tautology_goes():
    formula = Formula.from_lists([[3, 1, 3, 1], [1, -2, 2], [-1, 2]], weights=[5, 6, 7])
    assert as_lists(formula) == Plain(3, [[3, 1], [-1, 2]], [5, 7])
    assert formula.num_tautologies == 1
    assert formula.total_weight == 12


def test_an_empty_clause_is_always_falsified():
    formula = Formula.from_lists([[], [1], [], [-1], []], 1, [2, 3, 1, 5, 9])
    assert formula.num_empty == 3
    for value, rest in ((True, 5), (False, 3)):
        assert formula.cost(np.array([value])) == (2 + 1 + 9 + rest, 0)


def test_an_empty_hard_clause_is_always_counted():
    formula = Formula.from_lists([[1], []], hard=[False, True])
    assert formula.cost(np.array([True])) == (0, 1)
    assert formula.cost(np.array([False])) == (1, 1)
    assert formula.num_hard == 1


def test_no_clauses_and_no_variables_cost_nothing():
    for num_variables in (0, 3):
        formula = Formula.from_lists([], num_variables)
        assert formula.cost(np.zeros(num_variables, dtype=bool)) == (0, 0)
        assert formula.satisfied_share(np.zeros(num_variables, dtype=bool)) == 1.0
        assert formula.occurrence_starts.tolist() == [0] * (num_variables + 1)


def test_sums_of_weights_are_exact_up_to_the_last_unit():
    # Odd, above 2**53 and adding up to 2**63 - 1: a float sum is off by more than one.
    weights = [2**62 - 1, 2**61 + 1, 2**61 - 3, 2]
    formula = Formula.from_lists([[1], [1], [1], [1]], weights=weights)
    assert formula.cost(np.array([False])) == (2**63 - 1, 0)
    assert formula.total_weight == 2**63 - 1


def test_hard_clauses_weigh_nothing_and_no_hard_clause_means_no_mask():
    formula = Formula.from_lists([[1], [-1]], weights=[2**63 - 1, 4], hard=[True, False])
    assert formula.weights.tolist() == [0, 4]
    assert Formula.from_lists([[1]], hard=[False]).hard is None
    assert Formula.from_lists([[1, -1], [1]], hard=[True, False]).hard is None


def test_normal_form_holds_across_blocks_of_equal_and_mixed_lengths():
    rng = np.random.default_rng(5)
    lengths = np.concatenate([np.full(9_000, 4), rng.integers(0, 9, 9_000), [50_000], [2] * 50])
    signed = rng.integers(1, 60, lengths.sum()) * rng.choice([-1, 1], lengths.sum())
    clauses = [part.tolist() for part in np.split(signed, np.cumsum(lengths)[:-1])]
    plain = Plain(60, clauses, [1] * len(clauses))
    assert as_lists(formula_of(plain)) == normal(plain)


def test_arrays_have_compact_types_and_cannot_be_written():
    formula = Formula.from_lists([[1, -2], [2]], hard=[True, False])
    types = {
        "starts": np.int64,
        "literals": np.int32,
        "weights": np.int64,
        "hard": np.bool_,
        "occurrence_starts": np.int64,
        "occurrences": np.int32,
    }
    for name, dtype in types.items():
        array = getattr(formula, name)
        assert array.dtype == dtype, name
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"num_variables": -1}, "num_variables must be from 0"),
        ({"num_variables": 2**30 + 1}, "num_variables must be from 0"),
        ({"starts": []}, "starts must rise"),
        ({"starts": [0, 2, 1, 3]}, "starts must rise"),
        ({"starts": [1, 3, 3, 3]}, "starts must rise"),
        ({"starts": [0, 1, 2, 4]}, "starts must rise"),
        ({"literals": [0, 4, 1]}, "literals must be from 0 to 3, got from 0 to 4"),
        ({"literals": [0, -1, 1]}, "literals must be from 0 to 3, got from -1"),
        ({"literals": [0.0, 1.0, 2.0]}, "literals must be a row of integers"),
        ({"literals": [[0, 1, 2]]}, "literals must be a row of integers"),
        ({"weights": [1, 2]}, "3 clauses have 2 weights"),
        ({"weights": [1, 0, 1]}, "weights must be at least 1"),
        ({"weights": [1, -5, 1]}, "weights must be at least 1"),
        ({"weights": [2**62, 2**62, 1]}, "sum to at most 9223372036854775807"),
        ({"weights": np.array([2**64 - 1, 2**64 - 1, 1], np.uint64)}, "sum to at most"),
        ({"weights": [2**64, 1, 1]}, "weights must be a row of integers"),
        ({"weights": [1.5, 1, 1]}, "weights must be a row of integers"),
        ({"hard": [True]}, "hard must be 3 booleans"),
        ({"hard": [0, 1, 0]}, "hard must be 3 booleans"),
    ],
)
def test_arrays_that_are_no_formula_are_refused(fields, fault):
    good = {"num_variables": 2, "starts": [0, 1, 2, 3], "literals": [0, 1, 2], "weights": [1, 1, 1]}
    Formula(**good)
    with pytest.raises(DataError, match=f"^Formula: .*{fault}"):
        Formula(**(good | fields))


def test_small_integer_types_are_widened():
    arrays = (np.array(values, dtype=np.uint8) for values in ([0, 2], [0, 3], [200]))
    formula = Formula(2, *arrays)
    assert formula.cost(np.array([False, True])) == (200, 0)


def test_zero_is_not_a_literal():
    with pytest.raises(DataError, match="0 is not a literal"):
        Formula.from_lists([[1, 0]])


@pytest.mark.parametrize("values", [np.zeros(3, bool), np.zeros(2), np.zeros((1, 2), bool)])
def test_assignments_of_another_shape_or_type_are_refused(values):
    formula = Formula.from_lists([[1, 2]])
    with pytest.raises(DataError, match="an assignment is 2 booleans, got"):
        formula.cost(values)
