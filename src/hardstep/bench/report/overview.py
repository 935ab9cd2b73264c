"""All tasks and methods at one thing equal: one line per task, one column per method."""

from collections.abc import Iterable
from dataclasses import dataclass

from hardstep._pages import Markup, element
from hardstep.bench.axes import AXES
from hardstep.bench.report.tables import NONE, Cell, Column, sortable
from hardstep.bench.summary import Row, Summary, Table

# Before a baseline's score, by the reference's verdict, so that numbers still end in one line.
MARKS = {"win": "", "tie": "= ", "loss": "> "}


@dataclass(frozen=True)
class Overview:
    """Mean test scores of every method on every task that was compared along one axis."""

    axis: str
    methods: tuple[str, ...]  # the reference first
    tables: tuple[Table, ...]

    @property
    def title(self) -> str:
        """What was equal."""
        return f"Mean test scores at equal {AXES[self.axis].title}"

    @property
    def columns(self) -> list[Column]:
        """Headings; the first column names the task."""
        names = [Column(name) for name in self.methods]
        return [Column("task"), Column(AXES[self.axis].title), *names]

    def lines(self) -> list[tuple[str, list[Cell]]]:
        """Name and cells of every task."""
        return [(_name(table), self._cells(table)) for table in self.tables]

    def _cells(self, table: Table) -> list[Cell]:
        amount = table.budget.amount
        scores = [_score(table.row(method), table) for method in self.methods]
        return [Cell(f"{amount:,.10g}", amount), *scores]


def overviews(summary: Summary) -> list[Overview]:
    """One per axis along which something was compared."""
    found = []
    for axis in AXES:
        tables = [t for t in summary.tables if t.budget.axis == axis and len(_methods([t])) > 1]
        methods = sorted(_methods(tables), key=lambda name: (name != summary.reference, name))
        if tables:
            found.append(Overview(axis, tuple(methods), tuple(tables)))
    return found


def legend(reference: str) -> str:
    """What the marks mean."""
    return (
        f"= marks a tie with {reference}, > a score better than {reference}'s with every seed; "
        "the tables by task have spreads, costs and p-values."
    )


def overview_table(overview: Overview) -> Markup:
    """For the page."""
    rows = [(name, cells, False) for name, cells in overview.lines()]
    return element(
        "div",
        element("h3", overview.title),
        sortable(overview.title, overview.columns, rows),
        class_="overview",
    )


def _methods(tables: Iterable[Table]) -> set[str]:
    return {row.name for table in tables for row in table.rows}


def _score(row: Row | None, table: Table) -> Cell:
    value = None if row is None else row.mean("test")
    if row is None or value is None:
        return Cell(NONE)
    mark = MARKS[row.against.verdict] if row.against else ""
    digits = max(0, table.digits - 1)
    return Cell(f"{mark}{value[0]:.{digits}f}", value[0])


def _name(table: Table) -> str:
    unit = "" if table.metric.percent else f", {table.metric.name}"
    return f"{table.task}, {table.data}{unit}"
