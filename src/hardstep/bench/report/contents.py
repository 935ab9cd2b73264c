"""What a report shows, computed from runs: tables, tallies of wins and losses, ablations."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hardstep._checks import suggest
from hardstep.bench.protocol import Budget
from hardstep.bench.records import Record
from hardstep.bench.report.rows import Row, method_rows, variant_rows, with_margins
from hardstep.bench.report.runs import Measure, Run, Sorted, sort_out
from hardstep.bench.summary import AXIS_NAMES
from hardstep.errors import ConfigError, DataError


@dataclass(frozen=True)
class Table:
    """Methods, or variants of a study, on one task with one budget."""

    number: int
    task: str
    data: str
    measure: Measure
    budget: Budget
    rows: tuple[Row, ...]
    study: str = ""

    @property
    def runs(self) -> list[Run]:
        """All runs behind it."""
        return [run for row in self.rows for run in row.runs]

    @property
    def split(self) -> str:
        """What its scores are of: test, unless a run has none."""
        return "test" if all("test" in run.record for run in self.runs) else "valid"

    @property
    def digits(self) -> int:
        """Decimals of its scores: two of a percentage, else four digits of the largest."""
        if self.measure.percent:
            return 2
        scores = (abs(score) for row in self.rows for score in row.scores(self.split))
        largest = max(scores, default=0.0)
        return max(0, 3 - math.floor(math.log10(largest))) if largest else 3


@dataclass(frozen=True)
class Tally:
    """Wins, ties and losses of the reference at one thing equal, by rival."""

    axis: str
    verdicts: Mapping[str, Counter[str]]

    @property
    def total(self) -> Counter[str]:
        """Over all rivals."""
        return sum(self.verdicts.values(), Counter())


@dataclass(frozen=True)
class Contents:
    """Everything on the page."""

    reference: str
    tables: tuple[Table, ...]
    tallies: tuple[Tally, ...]
    studies: tuple[Table, ...]
    tuning: tuple[Run, ...]
    skipped: tuple[str, ...]
    repeated: int

    @property
    def runs(self) -> list[Run]:
        """All of them, for whatever purpose."""
        shown = [run for table in (*self.tables, *self.studies) for run in table.runs]
        return [*shown, *self.tuning]


def gather(
    records: Iterable[Record], reference: str = "polystep", skipped: Sequence[str] = ()
) -> Contents:
    """Compute what a report shows.

    Args:
        records: As `load` gives them.
        reference: The method that is compared with every other one.
        skipped: What `load` said about lines it could not use.

    Raises:
        DataError: No record can be used.
        ConfigError: There are comparisons, and none of them is of the reference.
    """
    found = sort_out(records)
    left_out = (*skipped, *found.skipped)
    if not (found.comparisons or found.ablations or found.tuning):
        raise DataError(_nothing(left_out))
    _check_reference(found, reference)
    tables = [
        Table(number, *place, with_margins(method_rows(runs), reference))
        for number, (place, runs) in enumerate(_by_place(found.comparisons), start=1)
    ]
    studies = [
        Table(number, task, data, measure, budget, variant_rows(runs), study)
        for number, ((task, data, measure, budget, study), runs) in enumerate(
            _by_study(found.ablations), start=len(tables) + 1
        )
    ]
    return Contents(reference, tuple(tables), _tallies(tables), tuple(studies),
                    tuple(found.tuning), left_out, found.repeated)  # fmt: skip


def _nothing(skipped: Sequence[str]) -> str:
    reason = f", the first because: {skipped[0]}" if skipped else ""
    return (
        f"no record can be shown, {len(skipped)} were skipped{reason}; give files that "
        "`hardstep bench run` or `hardstep compare --records` wrote"
    )


def _check_reference(found: Sorted, reference: str) -> None:
    methods = sorted({run.method for run in found.comparisons})
    if methods and reference not in methods:
        hint = suggest(reference, methods)
        raise ConfigError(f"--reference: no run is of method {reference!r}; {hint}")


Place = tuple[str, str, Measure, Budget]


def _by_place(runs: Iterable[Run]) -> list[tuple[Place, list[Run]]]:
    """Runs that may stand in one table."""
    groups: dict[Place, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.task, run.data, run.measure, run.budget].append(run)
    return sorted(groups.items(), key=lambda item: _order(item[0]))


def _by_study(runs: Iterable[Run]) -> list[tuple[tuple[str, str, Measure, Budget, str], list[Run]]]:
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[run.study].append(run)
    return [
        ((*place, name), found)
        for name, members in sorted(by_name.items())
        for place, found in _by_place(members)
    ]


def _order(place: Place) -> tuple[str, str, str, int, float]:
    task, data, measure, budget = place
    return task, data, measure.name, list(AXIS_NAMES).index(budget.axis), budget.amount


def _tallies(tables: Iterable[Table]) -> tuple[Tally, ...]:
    counts: dict[str, dict[str, Counter[str]]] = {axis: {} for axis in AXIS_NAMES}
    for table in tables:
        for row in table.rows:
            if row.against is not None:
                rival = counts[table.budget.axis].setdefault(row.method, Counter())
                rival[row.against.verdict] += 1
    return tuple(Tally(axis, dict(sorted(found.items()))) for axis, found in counts.items())
