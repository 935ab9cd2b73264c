"""PolyStep's presets for few evaluations, each with a sweep of its own, against rivals on digits.

The main comparison has `frugal`. `sketch` came later, so it stands in a study beside it.
"""

from collections import Counter
from collections.abc import Iterator

from costs import WITH_GRADIENTS

from hardstep._pages import markdown_table
from hardstep.bench.report import Contents
from hardstep.bench.report.contents import Table
from hardstep.bench.report.overview import MARKS
from hardstep.bench.report.rows import Row, with_margins

STUDY = "presets, equal evaluations"
PRESETS = ("frugal", "sketch")


def table(contents: Contents) -> str:
    """Test accuracy and CPU seconds; marks are of the best rival against each preset."""
    head = ["task", *(f"{name}: test" for name in PRESETS), "best rival against each",
            *(f"{name}: CPU s" for name in PRESETS), "best rival: CPU s"]  # fmt: skip
    lines = []
    for study, rivals in _tables(contents):
        rows = {name: _row(study, name) for name in PRESETS}
        best = [_best(row, rivals) for row in rows.values()]
        marks = ", ".join(MARKS[r.against.verdict].strip() or "<" for r in best if r.against)
        lines.append([
            f"`{study.task}`", *(_score(row) for row in rows.values()),
            f"{marks} {_score(best[0])} {best[0].method}",
            *(f"{row.cost('cpu_seconds') or 0.0:.1f}" for row in (*rows.values(), best[0])),
        ])  # fmt: skip
    return markdown_table(head, lines)


def figures(contents: Contents) -> dict[str, str]:
    """Wins, ties and losses of each preset against all methods without gradients; README's word."""
    found = {}
    for name in PRESETS:
        verdicts = Counter(
            row.against.verdict
            for study, rivals in _tables(contents)
            for row in with_margins([_row(study, name), *rivals], "polystep")
            if row.against
        )
        found[f"tally of {name}"] = " / ".join(str(verdicts[v]) for v in ("win", "tie", "loss"))
    (moe,) = (study for study, _ in _tables(contents) if study.task == "moe")
    return found | {"moe with sketch": _score(_row(moe, "sketch"))}


def _tables(contents: Contents) -> Iterator[tuple[Table, list[Row]]]:
    """The study's table of every task, and the rivals on the task with the same budget."""
    for study in contents.studies:
        if study.study == STUDY:
            place = (study.task, study.data, study.budget)
            (main,) = (t for t in contents.tables if (t.task, t.data, t.budget) == place)
            ours = ("polystep", WITH_GRADIENTS)
            yield study, [row for row in main.rows if row.method not in ours]


def _row(study: Table, name: str) -> Row:
    (row,) = (row for row in study.rows if row.label == name)
    return row


def _best(ours: Row, rivals: list[Row]) -> Row:
    """With the preset's margin over it."""
    return next(row for row in with_margins([ours, *rivals], "polystep") if row.against)


def _score(row: Row) -> str:
    mean, _ = row.summary("test") or (0.0, 0.0)
    return f"{mean:.1f}"
