"""Tables of a report: every column sorts by value, losses look like wins.

What a cell says is the same in HTML and in Markdown.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hardstep._pages import Markup, element, join
from hardstep.bench.axes import AXES, Budget
from hardstep.bench.summary import Row, Summary, Table

VERDICTS = ("win", "tie", "loss")
NONE = "–"


def score(value: tuple[float, float] | None, num: int, digits: int) -> str:
    """Mean and spread; a single run has no spread."""
    if value is None:
        return NONE
    mean, spread = value
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if num > 1 else "")


def signed(value: float, digits: int) -> str:
    """With its sign, a true minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def count(value: float | None) -> str:
    """A whole number with thousands separated."""
    return NONE if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Three significant digits or so."""
    if value is None:
        return NONE
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def megabytes(value: float | None) -> str:
    """Of bytes."""
    return NONE if value is None else f"{value / 1e6:,.0f}"


def p_value(value: float) -> str:
    """Or why there is none."""
    return "not computed" if math.isnan(value) else f"{value:.3g}"


class Column(NamedTuple):
    """A heading with its unit, and how the table is sorted by it at first."""

    title: str
    unit: str = ""
    order: str = "none"


class Cell(NamedTuple):
    """What is written, and what it is sorted by."""

    text: str
    value: float | None = None


COSTS = (  # heading, field of a record, how it is written; memory is not always known
    (Column("steps"), "steps", count),
    (Column("evaluations"), "evaluations", count),
    (Column("wall", "s"), "seconds", seconds),
    (Column("CPU", "s"), "cpu_seconds", seconds),
    (Column("peak", "MB"), "peak_memory_bytes", megabytes),
)


def sortable(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[str, Sequence[Cell], bool]],
    foot: str | None = None,
) -> Markup:
    """A table in a box of its own that scrolls where the page is narrow.

    Args:
        name: What the box is called to those who do not see it.
        columns: Headings; the first column names the rows.
        rows: Name, cells and whether it is the reference.
        foot: A row that stays where it is.
    """
    head = [
        element(
            "th",
            element("button", element("span", column.title), column.unit or None, type="button"),
            scope="col",
            aria_sort=column.order,
            class_="number" if position else "name",
        )
        for position, column in enumerate(columns)
    ]
    body = [_body_row(*row) for row in rows]
    table = element(
        "table",
        element("thead", element("tr", *head)),
        element("tbody", *body),
        element("tfoot", foot) if foot else None,
    )
    return element("div", table, class_="box", tabindex=0, role="region", aria_label=name)


def _body_row(name: str, cells: Sequence[Cell], reference: bool) -> Markup:
    written = [element("td", cell.text, class_="number", data_value=cell.value) for cell in cells]
    head = element("th", name, scope="row")
    return element("tr", head, *written, class_="reference" if reference else None)


def verdict_table(summary: Summary, axis: str) -> Markup:
    """Wins, ties and losses at one thing equal."""
    title = f"At equal {AXES[axis].title}"
    verdicts = summary.verdicts(axis)
    if not verdicts:
        return element(
            "div", element("h3", title), element("p", "Nothing was compared so.", class_="note")
        )
    columns = [Column("baseline"), *(Column(plural(word)) for word in VERDICTS), Column("in all")]
    rows = [
        (baseline, [Cell(str(number), number) for number in _numbers(found)], False)
        for baseline, found in verdicts.items()
    ]
    total = sum(verdicts.values(), Counter())
    totals = [element("td", str(number), class_="number") for number in _numbers(total)]
    foot = element("tr", element("th", "all", scope="row"), *totals)
    name = f"Wins, ties and losses of {summary.reference}, {title.lower()}"
    return element("div", element("h3", title), sortable(name, columns, rows, foot))


def _numbers(verdicts: dict[str, int]) -> list[int]:
    return [*(verdicts.get(word, 0) for word in VERDICTS), sum(verdicts.values())]


def plural(verdict: str) -> str:
    """Of a verdict."""
    return "losses" if verdict == "loss" else f"{verdict}s"


def comparison_columns(table: Table) -> list[Column]:
    """Headings of `comparison_cells`, after the method's name."""
    metric, percent = table.metric, "%" if table.metric.percent else ""
    best_first = "descending" if metric.higher_is_better else "ascending"
    return [
        Column(f"test {metric.name}", percent, best_first),
        Column("seeds"),
        Column("validation", percent),
        Column("margin", "points" if percent else ""),
        Column("p", "(its floor)"),
        Column("verdict"),
        *cost_columns(memory_known(table)),
    ]


def comparison_cells(row: Row, table: Table, reference: str) -> list[Cell]:
    """Scores, the reference's margin, and what the runs cost."""
    return [
        *_scores(row, table),
        *_margin(row, table, reference),
        *cost_cells(row, memory_known(table)),
    ]


def comparison_table(table: Table, summary: Summary) -> Markup:
    """Methods side by side."""
    reference = summary.reference
    columns = [Column("method"), *comparison_columns(table)]
    rows = [
        (row.title, comparison_cells(row, table, reference), row.name == reference)
        for row in table.rows
    ]
    return element(
        "figure",
        caption("Table", table),
        sortable(f"Table {table.number}", columns, rows),
        _several(table, summary.reference),
        id=f"table-{table.number}",
    )


def equal(budget: Budget) -> str:
    """What was equal, and how much of it there was."""
    return f"at equal {budget.title}, {budget.amount:,.10g} each"


def caption(word: str, table: Table) -> Markup:
    """Its number, what it shows, and the way to its settings."""
    title = element("b", f"{word} {table.number}.")
    shown = f" {table.task} on {table.data} {equal(table.budget)}."
    return element("figcaption", join(title, shown), settings_link(table))


def settings_link(table: Table) -> Markup:
    """To where its runs came from."""
    return join(" ", element("a", "Settings", href=f"#source-{table.number}", class_="aside"))


def _scores(row: Row, table: Table) -> list[Cell]:
    def cell(split: str) -> Cell:
        value = row.mean(split)
        text = score(value, len(row.scores(split)), table.digits)
        return Cell(text, value[0] if value else None)

    return [cell("test"), Cell(str(len(row.seeds)), len(row.seeds)), cell("valid")]


def _margin(row: Row, table: Table, reference: str) -> list[Cell]:
    found = row.against
    if found is None:
        word = "reference" if row.name == reference else NONE
        return [Cell(NONE), Cell(NONE), Cell(word)]
    p = found.test.p_value
    partial = len(found.seeds) < len(row.seeds)
    common = f" over {len(found.seeds)} common seeds" if partial else ""
    return [
        Cell(signed(found.mean, table.digits) + common, found.mean),
        Cell(f"{p_value(p)} ({found.test.floor:.3g})", None if math.isnan(p) else p),
        Cell(found.verdict, -VERDICTS.index(found.verdict)),
    ]


def memory_known(table: Table) -> bool:
    """Whether any run noted its peak."""
    return any(row.cost("peak_memory_bytes") is not None for row in table.rows)


def cost_columns(memory: bool) -> list[Column]:
    """Headings of `cost_cells`."""
    return [column for column, _, _ in _costs(memory)]


def cost_cells(row: Row, memory: bool) -> list[Cell]:
    """What its runs took on every axis."""
    return [Cell(write(row.cost(name)), row.cost(name)) for _, name, write in _costs(memory)]


def _costs(memory: bool) -> Sequence[tuple[Column, str, Callable[[float | None], str]]]:
    return COSTS if memory else COSTS[:-1]


def _several(table: Table, reference: str) -> Markup | None:
    """A note where it would not be clear whose the margins are."""
    if sum(row.name == reference for row in table.rows) < 2:
        return None
    return element(
        "p",
        f"{reference} ran in several configurations; margins are of the one with most seeds.",
        class_="note",
    )
