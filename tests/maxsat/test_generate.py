import hashlib

import numpy as np
import pytest

from hardstep.errors import ConfigError
from hardstep.maxsat import random_ksat
from hardstep.maxsat.generate import planted_assignment


def checksum(formula):
    little = formula.literals.astype("<i4").tobytes()
    return hashlib.sha256(little).hexdigest()[:16]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_variables": 1000, "seed": 7}, "a14c0880d8abd398"),
        ({"num_variables": 70_000, "seed": 0}, "495d00d96db747d4"),
        ({"num_variables": 50, "k": 5, "ratio": 20.0}, "14ce406a93546b14"),
        ({"num_variables": 1000, "seed": 7, "planted": True}, "cab3f9dd630d6109"),
    ],
)
def test_a_seed_means_the_same_clauses_forever(settings, expected):
    assert checksum(random_ksat(**settings)) == expected


def test_the_global_generator_is_neither_used_nor_moved():
    np.random.seed(1)  # noqa: NPY002
    first = random_ksat(100)
    after = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert after == np.random.random()  # noqa: NPY002
    assert checksum(random_ksat(100)) == checksum(first)


@pytest.mark.parametrize(("num_variables", "k"), [(3, 3), (4, 2), (9, 9), (40, 7), (1, 1)])
def test_variables_of_a_clause_are_distinct(num_variables, k):
    formula = random_ksat(num_variables, ratio=30.0, k=k)
    assert formula.num_clauses == 30 * num_variables
    assert formula.num_tautologies == 0
    variables = np.sort(formula.literals.reshape(-1, k) >> 1, axis=1)
    assert (np.diff(variables, axis=1) > 0).all()
    assert variables.max() < num_variables


def test_every_ordered_clause_is_equally_likely():
    num = 240_000
    formula = random_ksat(4, ratio=num / 4, k=3, seed=3)
    codes = formula.literals.reshape(-1, 3) @ np.array([64, 8, 1])
    _, counts = np.unique(codes, return_counts=True)
    kinds = 4 * 3 * 2 * 8
    assert counts.size == kinds
    mean = num / kinds
    # Five standard errors of a count; sqrt(mean) bounds its deviation.
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_the_number_of_clauses_is_rounded():
    assert random_ksat(100, ratio=4.27).num_clauses == 427
    assert random_ksat(10, ratio=0.0).num_clauses == 0
    assert random_ksat(1000, ratio=4.2666).num_clauses == 4267


def test_seeds_and_sizes_give_different_formulas():
    seen = {checksum(random_ksat(200, seed=seed)) for seed in range(5)}
    assert len(seen) == 5
    a, b = random_ksat(200).literals, random_ksat(201).literals
    assert (a[:300] != b[:300]).mean() > 0.9


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_planted_formula_is_satisfied_by_its_assignment(k):
    formula = random_ksat(60, ratio=8.0, k=k, seed=2, planted=True)
    assert formula.cost(planted_assignment(60, seed=2)) == (0, 0)
    plain = random_ksat(60, ratio=8.0, k=k, seed=2)
    np.testing.assert_array_equal(plain.literals >> 1, formula.literals >> 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_variables": 2},
        {"num_variables": 0, "k": 0},
        {"num_variables": 5, "k": 0},
        {"num_variables": 2**30 + 1},
        {"num_variables": 5, "ratio": -1.0},
        {"num_variables": 5, "ratio": float("nan")},
        {"num_variables": 5, "ratio": float("inf")},
        {"num_variables": 10**9, "ratio": 4.27},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ConfigError, match="random_ksat: .* got"):
        random_ksat(**settings)
