"""Times in words."""

import pytest

from hardstep._durations import format_duration


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
