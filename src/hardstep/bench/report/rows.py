"""Rows of a table: one method over its seeds, and the reference's margin over it."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hardstep.bench.report.runs import Run
from hardstep.bench.statistics import (
    MAX_SEEDS,
    Comparison,
    SignFlip,
    compare,
    mean_and_spread,
)


@dataclass(frozen=True)
class Row:
    """One method, or one variant of it, over its seeds."""

    label: str
    runs: tuple[Run, ...]
    against: Comparison | None = None  # the reference against it; positive: the reference is better

    @property
    def method(self) -> str:
        """Without what tells configurations apart."""
        return self.runs[0].method

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(sorted({run.seed for run in self.runs}))

    def scored(self, split: str) -> list[tuple[int, float]]:
        """Seed and score, as it is shown, of the runs that have one."""
        found = [(run, getattr(run, split)) for run in self.runs]
        return [(run.seed, run.measure.factor * score) for run, score in found if score is not None]

    def scores(self, split: str) -> list[float]:
        """Without the seeds."""
        return [score for _, score in self.scored(split)]

    def summary(self, split: str) -> tuple[float, float] | None:
        """Mean and spread over seeds."""
        scores = self.scores(split)
        return mean_and_spread(scores) if scores else None

    def cost(self, name: str) -> float | None:
        """Mean over the runs that noted it."""
        known = [cost for run in self.runs if (cost := run.cost(name)) is not None]
        return mean_and_spread(known)[0] if known else None


def method_rows(runs: Sequence[Run]) -> list[Row]:
    """A row per configuration, best first."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.configuration].append(run)
    labels = _labels(list(groups))
    rows = [Row(labels[key], tuple(found)) for key, found in groups.items()]
    sign = runs[0].measure.sign
    return sorted(rows, key=lambda row: (-sign * mean_and_spread(row.scores("test"))[0], row.label))


def _labels(configurations: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The method, and what tells its configurations apart if there are several."""
    labels = {}
    for method, options in configurations:
        mine = json.loads(options)
        others = [json.loads(theirs) for name, theirs in configurations if name == method]
        differing = [
            f"{name}={value}"
            for name, value in mine.items()
            if any(o.get(name) != value for o in others)
        ]
        several = f"{method} ({', '.join(differing) or 'default'})"
        labels[method, options] = several if len(others) > 1 else method
    return labels


def variant_rows(runs: Sequence[Run]) -> tuple[Row, ...]:
    """A row per variant; numbers in names are ordered by value."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.name].append(run)
    return tuple(Row(label, tuple(groups[label])) for label in sorted(groups, key=_natural))


def _natural(label: str) -> list[tuple[float, str]]:
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(float(part), "") if part[:1].isdigit() else (math.inf, part) for part in parts]


def most_seeds(rows: Sequence[Row], method: str) -> Row | None:
    """The row of a method; of several configurations the one with most seeds."""
    mine = [row for row in rows if row.method == method]
    return max(mine, key=lambda row: len(row.seeds), default=None)


def with_margins(rows: Sequence[Row], reference: str) -> tuple[Row, ...]:
    """Rows of rivals with the reference's margin over each.

    If the reference ran in several configurations, the one with most seeds is compared.
    """
    ours = most_seeds(rows, reference)
    if ours is None:
        return tuple(rows)
    return tuple(
        row if row.method == reference else Row(row.label, row.runs, _margin(ours, row))
        for row in rows
    )


def _margin(ours: Row, theirs: Row) -> Comparison | None:
    """Seed by seed; none without a common seed."""
    sign = ours.runs[0].measure.sign
    first, second = (
        {seed: sign * score for seed, score in row.scored("test")} for row in (ours, theirs)
    )
    seeds = tuple(sorted(first.keys() & second.keys()))
    if not seeds:
        return None
    if len(seeds) > MAX_SEEDS:  # the exact test goes through 2^n signs
        margins = tuple(first[seed] - second[seed] for seed in seeds)
        return Comparison(seeds, margins, SignFlip(math.nan, 2 / 2 ** len(seeds)))
    return compare(first, second)
