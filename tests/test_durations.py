"""Times and counts in words."""

import pytest

from hardstep._durations import format_count, format_duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.0314, "31 ms"),
        (1.26, "1.3 s"),
        (1.6, "1.6 s"),
        (89, "89 s"),
        (95, "1.6 min"),
        (600, "10 min"),
        (7000, "1.9 h"),
        (360_000, "100 h"),
    ],
)
def test_durations_are_said_in_their_own_unit(seconds, said):
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (512, "512"), (7_350, "7.35 k"), (1_234_567, "1.23 M"), (3e9, "3 G")],
)
def test_counts_are_three_digits_and_a_unit(number, said):
    assert format_count(number) == said
