"""Runs of one task side by side: scores, what they cost, and what the seeds allow to say."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hardstep.bench.records import Record, score_of
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
    diverged: int  # of them
    test: tuple[float, float]  # mean and spread
    valid: tuple[float, float]
    steps: float
    evaluations: float
    seconds: float

    @property
    def scored(self) -> int:
        """Runs its means are of."""
        return len(self.seeds) - self.diverged


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
        if "test" in record:
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


Configuration = tuple[str, str]  # a name, and options as text


def labels(configurations: Sequence[Configuration]) -> dict[Configuration, str]:
    """The name, and what tells its configurations apart if there are several."""
    found = {}
    for name, options in configurations:
        mine = json.loads(options)
        others = [json.loads(theirs) for other, theirs in configurations if other == name]
        differing = [
            f"{key}={value}"
            for key, value in mine.items()
            if any(other.get(key) != value for other in others)
        ]
        several = f"{name} ({', '.join(differing) or 'default'})"
        found[name, options] = several if len(others) > 1 else name
    return found


def summarize(records: Sequence[Record], reference: str) -> Summary:
    """Group runs by method and options; of runs that repeat each other the last one counts.

    `reference` is compared with every other method, on test scores; of several configurations of
    it the one with most seeds.
    """
    runs: dict[Configuration, dict[int, Record]] = {}
    for record in records:
        options = json.dumps(record.get("options") or {}, sort_keys=True)
        runs.setdefault((name_of(record), options), {})[record["seed"]] = record
    given = records[0].get("metric", ACCURACY) if records else ACCURACY
    metric = {"higher_is_better": True, "percent": False, **given}
    sign = 1 if metric["higher_is_better"] else -1
    label = labels(list(runs))
    scores = {
        key: {seed: sign * score_of(record, "test") for seed, record in found.items()}
        for key, found in runs.items()
    }
    ours = [key for key in runs if key[0] == reference]
    first = max(ours, key=lambda key: len(runs[key]), default=(reference, "{}"))
    against = {
        label[key]: compare(scores[first], theirs)
        for key, theirs in scores.items()
        if key not in ours and scores.get(first, {}).keys() & theirs.keys()
    }
    lines = [_line(label[key], list(found.values())) for key, found in runs.items()]
    ordered = sorted(lines, key=lambda line: (math.isnan(line.test[0]), -sign * line.test[0]))
    return Summary(tuple(ordered), label.get(first, reference), against, metric)


def _line(method: str, found: Sequence[Record]) -> Line:
    def mean(name: str) -> float:
        return mean_and_spread([record[name] for record in found if name in record])[0]

    return Line(
        method,
        tuple(sorted(record["seed"] for record in found)),
        sum(math.isnan(score_of(record, "test")) for record in found),
        mean_and_spread([score_of(record, "test") for record in found]),
        mean_and_spread([score_of(record, "valid") for record in found]),
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
    """The table and, below it, what the seeds allow to say."""
    return "\n".join([table(summary, axis), *_conclusions(summary)])


def table(summary: Summary, axis: str) -> str:
    """A table for the terminal; the axis of the comparison is part of it."""
    unit = ", %" if summary.metric["percent"] else f", {summary.metric['name']}"
    wide = max([12, *(len(line.method) + 2 for line in summary.lines)])
    cells = [
        [shown(value, line.scored, summary.metric) for value in (line.test, line.valid)]
        for line in summary.lines
    ]
    widest = max(len(cell) for cell in ["valid" + unit, *(cell for both in cells for cell in both)])
    score = max(16, 2 + widest)
    head = f"{'method':<{wide}}{'test' + unit:>{score}}{'valid' + unit:>{score}}{'steps':>10}"
    rows = [f"at equal {axis}", f"{head}{'evaluations':>14}{'s':>9}"]
    for line, both in zip(summary.lines, cells, strict=True):
        scores = "".join(f"{text:>{score}}" for text in both)
        rows.append(
            f"{line.method:<{wide}}{scores}"
            f"{line.steps:>10,.0f}{line.evaluations:>14,.0f}{line.seconds:>9.1f}"
        )
    return "\n".join(rows)


def _conclusions(summary: Summary) -> Iterator[str]:
    """What the reference wins and loses, and what to bear in mind."""
    scale, points = (100, " points") if summary.metric["percent"] else (1, "")
    for method, found in summary.against.items():
        finite = math.isfinite(found.mean)
        margin = f"margin {scale * found.mean:+.2f}{points}" if finite else "by divergence"
        seeds = ", ".join(map(str, found.seeds))
        yield (
            f"{summary.reference} against {method}: {found.verdict}, {margin} over seeds {seeds}, "
            f"{found.test}"
        )
    for line in summary.lines:
        if line.diverged:
            yield (
                f"{line.method}: {line.diverged} of {len(line.seeds)} runs diverged; they are not "
                "in its mean and count as behind"
            )
    if summary.against:
        plural = "s" if len(summary.against) > 1 else ""
        yield (f"{len(summary.against)} comparison{plural}; p-values are not corrected for that")


def shown(value: tuple[float, float], num: int, metric: Mapping[str, Any]) -> str:
    """Mean and, of several runs, spread, in per cent where the metric is shown so."""
    mean, spread = value
    if math.isnan(mean):
        return "diverged"
    if metric["percent"]:
        return f"{100 * mean:.2f}" + (f" ± {100 * spread:.2f}" if num > 1 else "")
    return f"{mean:.4g}" + (f" ± {spread:.2g}" if num > 1 else "")


def shown_score(record: Record, name: str) -> str:
    """One score of a run."""
    if record.get(name) is None:
        return "diverged"
    percent = record.get("metric", ACCURACY)["percent"]
    return f"{100 * record[name]:.2f} %" if percent else f"{record[name]:.4g}"
