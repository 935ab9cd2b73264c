"""What seeds allow to conclude: means with spread, paired margins, an exact sign-flip test.

Methods that ran with the same seed saw the same data, split and batches, so their scores are
compared seed by seed. If the two were equally good, each difference could as well have had the
other sign; the test counts how many of all 2^n ways to choose signs give a mean difference at least
as large. With n seeds no p-value can be below 2/2^n, which is printed beside it.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardstep.errors import DataError

MAX_SEEDS = 20  # all 2^n sign choices are gone through


@dataclass(frozen=True, slots=True)
class SignFlip:
    """An exact two-sided sign-flip test."""

    p_value: float  # NaN where it was not computed
    floor: float  # the smallest p-value so many seeds can give

    def __str__(self) -> str:
        value = "not computed" if math.isnan(self.p_value) else f"= {self.p_value:.3g}"
        return f"p {value} (floor {self.floor:.3g})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One method against another over common seeds."""

    seeds: tuple[int, ...]
    margins: tuple[float, ...]  # first minus second, per seed
    test: SignFlip

    @property
    def mean(self) -> float:
        """The mean margin over the seeds with which neither diverged; infinite without one."""
        finite = [margin for margin in self.margins if math.isfinite(margin)]
        return statistics.fmean(finite or self.margins)

    @property
    def verdict(self) -> str:
        """Win, tie or loss of the first: all margins on one side, or not."""
        if all(margin > 0 for margin in self.margins):
            return "win"
        return "loss" if all(margin < 0 for margin in self.margins) else "tie"


def sign_flip(differences: Sequence[float]) -> SignFlip:
    """Test whether paired differences are centered at zero.

    Raises:
        DataError: There are none, too many, or one is not finite.
    """
    num = len(differences)
    if not 1 <= num <= MAX_SEEDS or not all(map(math.isfinite, differences)):
        raise DataError(
            f"sign_flip needs from 1 to {MAX_SEEDS} finite differences, got {list(differences)}"
        )
    observed = abs(sum(differences))
    # Differences of scores are multiples of 1/N in binary, so equality needs some room.
    room = 1e-12 * sum(map(abs, differences))
    at_least = sum(
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True))) >= observed - room
        for signs in itertools.product((1, -1), repeat=num)
    )
    return SignFlip(at_least / 2**num, 2 / 2**num if num > 0 else 1.0)


def compare(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Compare scores, of which more is better, by seed; seeds only one of them has are left out.

    A run that diverged (a score that is not finite) is behind any that did not. The test is not
    computed then, nor where there are too many seeds for it.

    Raises:
        DataError: They have no seed in common.
    """
    seeds = tuple(sorted(first.keys() & second.keys()))
    if not seeds:
        raise DataError(f"no seed in common: {sorted(first)} and {sorted(second)}")
    margins = tuple(_margin(first[seed], second[seed]) for seed in seeds)
    possible = len(seeds) <= MAX_SEEDS and all(map(math.isfinite, margins))
    test = sign_flip(margins) if possible else SignFlip(math.nan, 2 / 2 ** len(seeds))
    return Comparison(seeds, margins, test)


def _margin(first: float, second: float) -> float:
    finite = math.isfinite(first), math.isfinite(second)
    if all(finite):
        return first - second
    return math.inf * (finite[0] - finite[1]) if any(finite) else 0.0


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation of the finite ones; the latter is 0 for a single value."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    return statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else 0.0
