"""Runs of one task side by side: scores, what they cost, and what the seeds allow to say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hardstep.bench.records import Record
from hardstep.bench.statistics import Comparison, compare, mean_and_spread

AXIS_NAMES = {"steps": "steps", "evals": "evaluations", "time": "wall-clock seconds"}
ACCURACY = {"name": "accuracy", "higher_is_better": True, "percent": True}  # unless a record says


class Group(NamedTuple):
    """What makes runs comparable: one task, one data set, one axis with one budget."""

    task: str
    data: str
    axis: str
    amount: float
    study: str = ""

    @property
    def title(self) -> str:
        """In a few words, without the budget."""
        return f"{self.task}, {self.data}" + (f", {self.study}" if self.study else "")


@dataclass(frozen=True)
class Line:
    """One method, or variant of it, over its seeds; scores are in the metric's own unit."""

    method: str
    seeds: tuple[int, ...]
    test: tuple[float, float]  # mean and spread
    valid: tuple[float, float]
    steps: float
    evaluations: float
    seconds: float


@dataclass(frozen=True)
class Summary:
    """All methods, best first, and the reference against each of the others."""

    lines: tuple[Line, ...]
    reference: str
    against: dict[str, Comparison]
    metric: Mapping[str, Any]


def groups(records: Iterable[Record]) -> dict[Group, list[Record]]:
    """Reported runs by what makes them comparable, sorted; sweeps are left out."""
    found: dict[Group, list[Record]] = {}
    for record in records:
        if "test" in record and "budget" in record:
            budget = record["budget"]
            group = Group(record["task"], record["data"], budget["axis"], budget["amount"],
                          record.get("study", ""))  # fmt: skip
            found.setdefault(group, []).append(record)
    return dict(sorted(found.items()))


def name_of(record: Record) -> str:
    """What a run is called in tables: its variant in a study, else its method."""
    variant = str(record.get("variant", ""))
    if not record.get("study"):
        return str(record["method"])
    return variant if record["method"] == "polystep" else f"{record['method']} {variant}"


def summarize(records: Sequence[Record], reference: str) -> Summary:
    """Group runs by method; `reference` is compared with every other one, on test scores."""
    by_method: dict[str, list[Record]] = {}
    for record in records:
        by_method.setdefault(name_of(record), []).append(record)
    metric = records[0].get("metric", ACCURACY) if records else ACCURACY
    sign = 1 if metric["higher_is_better"] else -1
    lines = [_line(method, found) for method, found in by_method.items()]
    scores = {
        method: {record["seed"]: sign * record["test"] for record in found}
        for method, found in by_method.items()
    }
    against = {
        method: compare(scores[reference], theirs)
        for method, theirs in scores.items()
        if method != reference and scores.get(reference, {}).keys() & theirs.keys()
    }
    ordered = sorted(lines, key=lambda line: -sign * line.test[0])
    return Summary(tuple(ordered), reference, against, metric)


def _line(method: str, found: Sequence[Record]) -> Line:
    def mean(name: str) -> float:
        return mean_and_spread([record[name] for record in found])[0]

    return Line(
        method,
        tuple(sorted(record["seed"] for record in found)),
        mean_and_spread([record["test"] for record in found]),
        mean_and_spread([record["valid"] for record in found]),
        mean("steps"),
        mean("evaluations"),
        mean("seconds"),
    )


def tally(summaries: Iterable[tuple[Group, Summary]]) -> dict[str, dict[str, int]]:
    """Wins, ties and losses of the reference per axis, ablations left out."""
    found: dict[str, dict[str, int]] = {}
    for group, summary in summaries:
        if group.study:
            continue
        counts = found.setdefault(group.axis, {"win": 0, "tie": 0, "loss": 0})
        for comparison in summary.against.values():
            counts[comparison.verdict] += 1
    return found


def text(summary: Summary, axis: str) -> str:
    """A table for the terminal; the axis of the comparison is part of it."""
    unit = ", %" if summary.metric["percent"] else f", {summary.metric['name']}"
    wide = max([12, *(len(line.method) + 2 for line in summary.lines)])
    score = max(16, len("valid" + unit) + 2)
    head = f"{'method':<{wide}}{'test' + unit:>{score}}{'valid' + unit:>{score}}{'steps':>10}"
    rows = [f"at equal {axis}", f"{head}{'evaluations':>14}{'s':>9}"]
    for line in summary.lines:
        both = (shown(value, summary.metric) for value in (line.test, line.valid))
        scores = "".join(f"{text:>{score}}" for text in both)
        rows.append(
            f"{line.method:<{wide}}{scores}"
            f"{line.steps:>10,.0f}{line.evaluations:>14,.0f}{line.seconds:>9.1f}"
        )
    scale, points = (100, " points") if summary.metric["percent"] else (1, "")
    for method, found in summary.against.items():
        rows.append(
            f"{summary.reference} against {method}: {found.verdict}, margin "
            f"{scale * found.mean:+.2f}{points} over seeds {', '.join(map(str, found.seeds))}, "
            f"{found.test}"
        )
    if summary.against:
        rows.append(f"{len(summary.against)} comparisons; p-values are not corrected for that")
    return "\n".join(rows)


def shown(value: tuple[float, float], metric: Mapping[str, Any]) -> str:
    """Mean and spread, in per cent where the metric is shown so."""
    if metric["percent"]:
        return f"{100 * value[0]:.2f} ± {100 * value[1]:.2f}"
    return f"{value[0]:.4g} ± {value[1]:.2g}"


def shown_score(record: Record, name: str) -> str:
    """One score of a run."""
    percent = record.get("metric", ACCURACY)["percent"]
    return f"{100 * record[name]:.2f} %" if percent else f"{record[name]:.4g}"
