"""From records to rows and tables: methods side by side, and what the seeds allow to say.

A record with a stage is of a sweep, and so is one without a test score; one that names a study
belongs to an ablation; the rest compares methods. Scores are in the unit they are shown in: per
cent where the metric says so.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardstep._checks import suggest
from hardstep.bench.axes import AXES, Budget
from hardstep.bench.records import Record, score_of, to_number
from hardstep.bench.statistics import Comparison, compare, mean_and_spread
from hardstep.errors import ConfigError, DataError
from hardstep.training import ACCURACY, Metric


def metric_of(record: Record) -> Metric:
    """What its scores are; accuracy unless it says otherwise. Records do not have the function."""
    given = record.get("metric") or ACCURACY.describe()
    return Metric(
        given["name"],
        _no_function,
        bool(given.get("higher_is_better", True)),
        bool(given.get("percent", False)),
    )


def _no_function(output: Any, target: Any) -> Any:
    raise DataError("a record has the name of a metric, and not the metric itself")


def name_of(record: Record) -> str:
    """What a run is called in tables: its variant in a study, else its method."""
    method, variant = str(record["method"]), str(record.get("variant", ""))
    if not record.get("study"):
        return method
    return (variant or method) if method == "polystep" else f"{method} {variant}"


def options_of(record: Record) -> str:
    """As text: runs of one name that agree on them are replicas."""
    return json.dumps(record.get("options") or {}, sort_keys=True)


@dataclass(frozen=True)
class Row:
    """One method, or one variant of it, over its seeds."""

    label: str  # its name, and what tells its configurations apart if there are several
    runs: tuple[Record, ...]
    against: Comparison | None = None  # the reference against it; positive: the reference is better

    @property
    def name(self) -> str:
        """Without what tells configurations apart."""
        return name_of(self.runs[0])

    @property
    def method(self) -> str:
        """Also of a variant."""
        return str(self.runs[0]["method"])

    @property
    def title(self) -> str:
        """Its label, and how many of its runs diverged."""
        num = self.num_diverged
        return f"{self.label}, {num} of {len(self.runs)} diverged" if num else self.label

    @property
    def metric(self) -> Metric:
        """What its scores are."""
        return metric_of(self.runs[0])

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(sorted({run["seed"] for run in self.runs}))

    @property
    def num_diverged(self) -> int:
        """Runs that were scored, and the score was not a number."""
        return sum("test" in run and to_number(run["test"]) is None for run in self.runs)

    def scored(self, split: str) -> list[tuple[int, float]]:
        """Seed and score of the runs that have one."""
        factor = self.metric.factor
        found = [(run["seed"], factor * score_of(run, split)) for run in self.runs]
        return [(seed, score) for seed, score in found if not math.isnan(score)]

    def scores(self, split: str) -> list[float]:
        """Without the seeds."""
        return [score for _, score in self.scored(split)]

    def mean(self, split: str) -> tuple[float, float] | None:
        """Mean and spread over seeds."""
        scores = self.scores(split)
        return mean_and_spread(scores) if scores else None

    def cost(self, name: str) -> float | None:
        """Mean over the runs that noted it."""
        known = [cost for run in self.runs if (cost := to_number(run.get(name))) is not None]
        return mean_and_spread(known)[0] if known else None


@dataclass(frozen=True)
class Table:
    """Methods, or variants of a study, on one task with one budget."""

    number: int
    task: str
    data: str
    metric: Metric
    budget: Budget
    rows: tuple[Row, ...]
    study: str = ""

    @property
    def runs(self) -> list[Record]:
        """All runs behind it."""
        return [run for row in self.rows for run in row.runs]

    @property
    def split(self) -> str:
        """What its scores are of: test, unless a run has none."""
        return "test" if all("test" in run for run in self.runs) else "valid"

    @property
    def digits(self) -> int:
        """Decimals of its scores: two of a percentage, else four digits of the largest."""
        if self.metric.percent:
            return 2
        scores = (abs(score) for row in self.rows for score in row.scores(self.split))
        largest = max(scores, default=0.0)
        return max(0, 3 - math.floor(math.log10(largest))) if largest else 3

    def row(self, name: str) -> Row | None:
        """The row of a method; of several configurations the one with most seeds."""
        return most_seeds(self.rows, name)


@dataclass(frozen=True)
class Summary:
    """Everything a report shows."""

    reference: str
    tables: tuple[Table, ...]  # that compare methods
    studies: tuple[Table, ...]  # ablations
    tuning: tuple[Record, ...]
    skipped: tuple[str, ...]
    repeated: int

    @property
    def runs(self) -> list[Record]:
        """All of them, for whatever purpose."""
        shown = [run for table in (*self.tables, *self.studies) for run in table.runs]
        return [*shown, *self.tuning]

    def verdicts(self, axis: str) -> dict[str, Counter[str]]:
        """Wins, ties and losses of the reference at one thing equal, by method."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for table in self.tables:
            for row in table.rows:
                if row.against is not None and table.budget.axis == axis:
                    found[row.name][row.against.verdict] += 1
        return dict(sorted(found.items()))


Place = tuple[str, str, Metric, Budget, str]  # what runs of one table share; the last is a study


def summarize(
    records: Iterable[Record], reference: str = "polystep", skipped: Sequence[str] = ()
) -> Summary:
    """Place every run in a table; of runs that repeat each other the last one counts.

    Args:
        records: As `load` gives them.
        reference: The method that is compared with every other one.
        skipped: What `load` said about lines it could not use.

    Raises:
        DataError: There is no record.
        ConfigError: There are comparisons, and the reference is neither a method nor a variant.
    """
    latest: dict[Any, tuple[Place, Record]] = {}
    repeated = 0
    for record in records:
        place = _place(record)
        who = (record["method"], record.get("variant"), options_of(record), record["seed"])
        key = (place, who, str(record.get("stage")))
        repeated += key in latest
        latest[key] = (place, record)
    if not latest:
        raise DataError(_nothing(skipped))
    tuning = []
    groups: dict[Place, list[Record]] = defaultdict(list)
    for place, record in latest.values():
        if record.get("stage") or not (place[-1] or "test" in record):
            tuning.append(record)
        else:
            groups[place].append(record)
    tables = [_table(number, place, groups[place], reference)
              for number, place in enumerate(sorted(groups, key=_order), start=1)]  # fmt: skip
    compared = tuple(table for table in tables if not table.study)
    _check_reference(tables if compared else (), reference)
    studies = tuple(table for table in tables if table.study)
    return Summary(reference, compared, studies, tuple(tuning), tuple(skipped), repeated)


def _place(record: Record) -> Place:
    budget = Budget(record["budget"]["axis"], float(record["budget"]["amount"]))
    study = str(record.get("study") or "")
    return record["task"], record["data"], metric_of(record), budget, study


def _order(place: Place) -> tuple[str, str, str, str, int, float]:
    """Comparisons before studies."""
    task, data, metric, budget, study = place
    return study, task, data, metric.name, list(AXES).index(budget.axis), budget.amount


def _nothing(skipped: Sequence[str]) -> str:
    reason = f", the first because: {skipped[0]}" if skipped else ""
    return (
        f"no record can be shown, {len(skipped)} were skipped{reason}; give files that "
        "`hardstep bench run` or `hardstep compare --records` wrote"
    )


def _check_reference(tables: Iterable[Table], reference: str) -> None:
    names = {name for table in tables for row in table.rows for name in (row.name, row.method)}
    if names and reference not in names:
        hint = suggest(reference, sorted(names))
        raise ConfigError(f"--reference: no run is of method {reference!r}; {hint}")


def _table(number: int, place: Place, runs: Sequence[Record], reference: str) -> Table:
    """Methods best first; variants by name, numbers in names by value."""
    task, data, metric, budget, study = place
    sign = metric.sign

    def rank(row: Row) -> tuple[bool, float, str]:
        mean = row.mean("test")
        return mean is None, 0.0 if mean is None else -sign * mean[0], row.label

    rows = sorted(_rows(runs), key=(lambda row: _natural(row.label)) if study else rank)
    return Table(number, task, data, metric, budget, with_margins(rows, reference), study)


def _rows(runs: Sequence[Record]) -> list[Row]:
    """One per configuration."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for run in runs:
        groups[name_of(run), options_of(run)].append(run)
    return [Row(_label(key, list(groups)), tuple(found)) for key, found in groups.items()]


def _label(configuration: tuple[str, str], all_of_them: Sequence[tuple[str, str]]) -> str:
    """The name, and what tells its configurations apart if there are several."""
    name, options = configuration
    others = [json.loads(theirs) for other, theirs in all_of_them if other == name]
    if len(others) == 1:
        return name
    differing = [
        f"{key}={value}"
        for key, value in json.loads(options).items()
        if any(other.get(key) != value for other in others)
    ]
    return f"{name} ({', '.join(differing) or 'default'})"


def _natural(label: str) -> list[tuple[float, str]]:
    parts = re.split(r"(\d+(?:\.\d+)?)", label)  # text, number, text, …
    return [(float(p), "") if i % 2 else (math.inf, p) for i, p in enumerate(parts)]


def most_seeds(rows: Sequence[Row], name: str) -> Row | None:
    """The row of that name; of several configurations the one with most seeds."""
    return max((r for r in rows if r.name == name), key=lambda row: len(row.seeds), default=None)


def with_margins(rows: Sequence[Row], reference: str) -> tuple[Row, ...]:
    """Rows with the reference's margin over each but its own.

    If the reference ran in several configurations, the one with most seeds is compared.
    """
    ours = most_seeds(rows, reference)
    if ours is None:
        return tuple(rows)
    return tuple(r if r.name == reference else replace(r, against=margin(ours, r)) for r in rows)


def margin(ours: Row, theirs: Row) -> Comparison | None:
    """Seed by seed; none without a common seed."""
    sign = ours.metric.sign
    first, second = (
        {run["seed"]: math.nan for run in row.runs if "test" in run}
        | {seed: sign * score for seed, score in row.scored("test")}
        for row in (ours, theirs)
    )
    return compare(first, second) if first.keys() & second.keys() else None
