"""Tables for the terminal."""

import math
from collections.abc import Iterator

from hardstep._text import to_line
from hardstep.bench.axes import PLAYED, axes_of
from hardstep.bench.records import Record, score_of
from hardstep.bench.summary import Table, metric_of
from hardstep.training import Metric


def write_comparison(table: Table, reference: str) -> str:
    """The table and, below it, what the seeds allow to say."""
    return "\n".join([write_table(table), *map(to_line, _conclusions(table, reference))])


def write_table(table: Table) -> str:
    """Methods with their scores and costs; what was equal is part of it."""
    unit = ", %" if table.metric.percent else f", {to_line(table.metric.name)}"
    labels = [to_line(row.label) for row in table.rows]
    wide = max([12, *(len(label) + 2 for label in labels)])
    cells = [
        [write_mean(row.mean(split), len(row.scores("test")), table.metric)
         for split in ("test", "valid")]
        for row in table.rows
    ]  # fmt: skip
    widest = max(len(cell) for cell in ["valid" + unit, *(cell for both in cells for cell in both)])
    score = max(16, 2 + widest)
    head = f"{'method':<{wide}}{'test' + unit:>{score}}{'valid' + unit:>{score}}{'steps':>10}"
    played = PLAYED in axes_of(table.runs)
    last = f"{PLAYED:>15}" if played else ""
    lines = [f"at equal {table.budget.title}", f"{head}{'evaluations':>14}{'s':>9}{last}"]
    for row, label, both in zip(table.rows, labels, cells, strict=True):
        steps, evaluations, seconds = (
            math.nan if (cost := row.cost(name)) is None else cost
            for name in ("steps", "evaluations", "seconds")
        )
        scores = "".join(f"{text:>{score}}" for text in both)
        costs = f"{steps:>10,.0f}{evaluations:>14,.0f}{seconds:>9.1f}"
        count = f"{row.cost(PLAYED) or math.nan:>15,.0f}" if played else ""
        lines.append(f"{label:<{wide}}{scores}{costs}{count}")
    return "\n".join(lines)


def _conclusions(table: Table, reference: str) -> Iterator[str]:
    """What the reference wins and loses, and what to bear in mind."""
    ours, points = table.row(reference), " points" if table.metric.percent else ""
    compared = [(row, row.against) for row in table.rows if row.against is not None]
    for row, found in compared:
        margin = f"margin {found.mean:+.2f}{points}"
        seeds = ", ".join(map(str, found.seeds))
        yield (
            f"{ours.label if ours else reference} against {row.label}: {found.verdict}, "
            f"{margin if math.isfinite(found.mean) else 'by divergence'} over seeds {seeds}, "
            f"{found.test}"
        )
    for row in table.rows:
        if row.num_diverged:
            yield (
                f"{row.label}: {row.num_diverged} of {len(row.seeds)} runs diverged; they are not "
                "in its mean and count as behind"
            )
    if compared:
        plural = "s" if len(compared) > 1 else ""
        yield f"{len(compared)} comparison{plural}; p-values are not corrected for that"


def write_mean(value: tuple[float, float] | None, num: int, metric: Metric) -> str:
    """Mean and, of several runs, spread, in the unit they are shown in."""
    if value is None:
        return "diverged"
    mean, spread = value
    if metric.percent:
        return f"{mean:.2f}" + (f" ± {spread:.2f}" if num > 1 else "")
    return f"{mean:.4g}" + (f" ± {spread:.2g}" if num > 1 else "")


def write_score(record: Record, split: str) -> str:
    """One score of a run."""
    score, percent = score_of(record, split), metric_of(record).percent
    if math.isnan(score):
        return "diverged"
    return f"{100 * score:.2f} %" if percent else f"{score:.4g}"
