"""PolyStep's presets for few evaluations, each after a sweep, against baselines on digits.

The main comparison has `frugal`. `sketch` came later, so it stands in a study beside it.
"""

from collections import Counter
from collections.abc import Iterator

from benchmarks.pages.costs import WITH_GRADIENTS
from hardstep._pages import markdown_table
from hardstep.bench.report.overview import MARKS
from hardstep.bench.summary import Row, Summary, Table, with_margins

STUDY = "presets, equal evaluations"
PRESETS = ("frugal", "sketch")


def table(summary: Summary) -> str:
    """Test accuracy and CPU seconds; marks are of the best baseline against each preset."""
    head = ["task", *(f"{name}: test" for name in PRESETS), "best baseline against each",
            *(f"{name}: CPU s" for name in PRESETS), "best baseline: CPU s"]  # fmt: skip
    lines = []
    for study, baselines in _tables(summary):
        rows = {name: _row(study, name) for name in PRESETS}
        best = [_best(row, baselines) for row in rows.values()]
        marks = ", ".join(MARKS[r.against.verdict].strip() or "<" for r in best if r.against)
        lines.append([
            f"`{study.task}`", *(_score(row) for row in rows.values()),
            f"{marks} {_score(best[0])} {best[0].method}",
            *(f"{row.cost('cpu_seconds') or 0.0:.1f}" for row in (*rows.values(), best[0])),
        ])  # fmt: skip
    return markdown_table(head, lines)


def figures(summary: Summary) -> dict[str, str]:
    """Wins, ties and losses of each preset against all methods without gradients; README's word."""
    found = {}
    for name in PRESETS:
        verdicts = Counter(
            row.against.verdict
            for study, baselines in _tables(summary)
            for row in with_margins([_row(study, name), *baselines], name)
            if row.against
        )
        found[f"tally of {name}"] = " / ".join(str(verdicts[v]) for v in ("win", "tie", "loss"))
    (moe,) = (study for study, _ in _tables(summary) if study.task == "moe")
    return found | {"moe with sketch": _score(_row(moe, "sketch"))}


def _tables(summary: Summary) -> Iterator[tuple[Table, list[Row]]]:
    """The study's table of every task, and the baselines on the task with the same budget."""
    for study in summary.studies:
        if study.study == STUDY:
            place = (study.task, study.data, study.budget)
            (main,) = (t for t in summary.tables if (t.task, t.data, t.budget) == place)
            ours = ("polystep", WITH_GRADIENTS)
            yield study, [row for row in main.rows if row.method not in ours]


def _row(study: Table, name: str) -> Row:
    (row,) = (row for row in study.rows if row.label == name)
    return row


def _best(ours: Row, baselines: list[Row]) -> Row:
    """With the preset's margin over it."""
    return next(row for row in with_margins([ours, *baselines], ours.name) if row.against)


def _score(row: Row) -> str:
    mean, _ = row.mean("test") or (0.0, 0.0)
    return f"{mean:.1f}"
