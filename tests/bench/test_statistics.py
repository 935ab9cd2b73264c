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
