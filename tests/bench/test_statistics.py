import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

from hardstep.bench import compare, mean_and_spread, sign_flip
from hardstep.errors import DataError

numbers = st.lists(st.integers(-50, 50), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(numbers)
def test_the_p_value_is_that_of_scipys_exact_permutation_test(differences):
    reference = permutation_test(
        (np.array(differences, dtype=float),), np.mean, permutation_type="samples", n_resamples=9999
    )
    assert sign_flip(differences).p_value == pytest.approx(min(1.0, reference.pvalue))


def test_the_floor_is_reached_when_all_margins_agree():
    for num in range(1, 8):
        found = sign_flip([0.5 + i for i in range(num)])
        assert found.p_value == found.floor == 2 / 2**num


def test_the_p_value_does_not_depend_on_the_unit():
    differences = [3.0, -1.0, 2.0, 5.0, 4.0]
    for unit in (1e-13, 1.0, 1e13):
        found = sign_flip([unit * difference for difference in differences])
        assert found.p_value == sign_flip(differences).p_value == 4 / 32


def test_equal_scores_tell_nothing():
    assert sign_flip([0.0] * 5).p_value == 1.0


def test_margins_are_paired_by_seed():
    found = compare({1: 0.9, 2: 0.8, 3: 0.7}, {3: 0.6, 2: 0.7, 9: 0.1})
    assert found.seeds == (2, 3)
    assert found.margins == pytest.approx((0.1, 0.1))
    assert found.mean == pytest.approx(0.1)
    assert found.verdict == "win"
    assert str(found.test) == "p = 0.5 (floor 0.5)"


@pytest.mark.parametrize(
    ("margins", "verdict"), [((0.1, 0.2), "win"), ((-0.1, -0.2), "loss"), ((0.1, -0.2), "tie")]
)
def test_verdicts(margins, verdict):
    scores = dict(enumerate(margins))
    assert compare(scores, dict.fromkeys(scores, 0.0)).verdict == verdict


def test_a_single_value_has_no_spread():
    assert mean_and_spread([3.0]) == (3.0, 0.0)
    assert mean_and_spread([1.0, 3.0]) == pytest.approx((2.0, 2**0.5))


@pytest.mark.parametrize("bad", [[], [float("nan")], [1.0] * 21])
def test_what_cannot_be_tested_is_refused(bad):
    with pytest.raises(DataError, match="finite differences"):
        sign_flip(bad)
    with pytest.raises(DataError, match="no seed in common"):
        compare({1: 1.0}, {2: 1.0})


def test_a_run_that_diverged_is_behind_any_that_did_not():
    found = compare({1: 0.9, 2: 0.8, 3: math.nan}, {1: math.nan, 2: 0.7, 3: math.inf})
    assert found.margins == pytest.approx((math.inf, 0.1, 0.0))
    assert found.verdict == "tie"  # both diverged with the last seed
    assert found.mean == pytest.approx(0.05)  # of the seeds with a margin
    assert str(found.test) == "p not computed (floor 0.25)"
    assert compare({1: math.nan}, {1: 0.1}).verdict == "loss"
    assert mean_and_spread([0.5, math.nan, 0.7]) == pytest.approx((0.6, 0.02**0.5))
    assert all(map(math.isnan, mean_and_spread([math.inf])))


def test_with_more_seeds_than_the_test_takes_there_is_still_a_margin():
    found = compare(dict.fromkeys(range(25), 2.0), dict.fromkeys(range(25), 1.0))
    assert (found.mean, found.verdict) == (1.0, "win")
    assert math.isnan(found.test.p_value)
