"""Runs of one task side by side: scores, what they cost, and what the seeds allow to say."""

from collections.abc import Sequence
from dataclasses import dataclass

from hardstep.bench.records import Record
from hardstep.bench.statistics import Comparison, compare, mean_and_spread


@dataclass(frozen=True)
class Line:
    """One method over its seeds; scores are shares."""

    method: str
    seeds: tuple[int, ...]
    test: tuple[float, float]  # mean and spread
    valid: tuple[float, float]
    steps: float
    evaluations: float
    seconds: float


@dataclass(frozen=True)
class Summary:
    """All methods, best first, and the first method asked for against each of the others."""

    lines: tuple[Line, ...]
    reference: str
    against: dict[str, Comparison]


def summarize(records: Sequence[Record], reference: str) -> Summary:
    """Group runs by method; `reference` is compared with every other one, on test scores."""
    by_method: dict[str, list[Record]] = {}
    for record in records:
        by_method.setdefault(record["method"], []).append(record)
    lines = [_line(method, found) for method, found in by_method.items()]
    scores = {
        method: {record["seed"]: record["test"] for record in found}
        for method, found in by_method.items()
    }
    against = {
        method: compare(scores[reference], theirs)
        for method, theirs in scores.items()
        if method != reference and scores.get(reference, {}).keys() & theirs.keys()
    }
    ordered = sorted(lines, key=lambda line: -line.test[0])
    return Summary(tuple(ordered), reference, against)


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


def text(summary: Summary, axis: str) -> str:
    """A table for the terminal; the axis of the comparison is part of it."""
    head = f"{'method':<12}{'test, %':>16}{'valid, %':>16}{'steps':>10}{'evaluations':>14}{'s':>9}"
    rows = [f"at equal {axis}", head]
    for line in summary.lines:
        rows.append(
            f"{line.method:<12}{_percent(line.test):>16}{_percent(line.valid):>16}"
            f"{line.steps:>10,.0f}{line.evaluations:>14,.0f}{line.seconds:>9.1f}"
        )
    for method, found in summary.against.items():
        rows.append(
            f"{summary.reference} against {method}: {found.verdict}, margin "
            f"{100 * found.mean:+.2f} points over seeds {', '.join(map(str, found.seeds))}, "
            f"{found.test}"
        )
    if summary.against:
        rows.append(f"{len(summary.against)} comparisons; p-values are not corrected for that")
    return "\n".join(rows)


def _percent(value: tuple[float, float]) -> str:
    return f"{100 * value[0]:.2f} ± {100 * value[1]:.2f}"
