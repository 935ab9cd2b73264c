"""Rows of a table: one method over its seeds, and the reference's margin over it."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hardstep.bench.report.runs import Run
from hardstep.bench.statistics import Comparison, compare, mean_and_spread
from hardstep.bench.summary import labels


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
    sign = runs[0].measure.sign

    def rank(row: Row) -> tuple[bool, float, str]:
        summary = row.summary("test")
        return summary is None, 0.0 if summary is None else -sign * summary[0], row.label

    return sorted(_rows(runs), key=rank)


def variant_rows(runs: Sequence[Run]) -> tuple[Row, ...]:
    """A row per variant; numbers in names are ordered by value."""
    return tuple(sorted(_rows(runs), key=lambda row: _natural(row.label)))


def _rows(runs: Sequence[Run]) -> list[Row]:
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.name, run.options].append(run)
    label = labels(list(groups))
    return [Row(label[key] + _diverged(found), tuple(found)) for key, found in groups.items()]


def _diverged(runs: Sequence[Run]) -> str:
    num = sum(run.diverged for run in runs)
    return f", {num} of {len(runs)} diverged" if num else ""


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
        {run.seed: math.nan for run in row.runs if run.diverged}
        | {seed: sign * score for seed, score in row.scored("test")}
        for row in (ours, theirs)
    )
    return compare(first, second) if first.keys() & second.keys() else None
