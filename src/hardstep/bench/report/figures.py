"""Figures of a report: learning curves for the script to draw, and ablations as dots."""

from collections.abc import Sequence
from typing import Any

from hardstep._pages import Markup, element, join
from hardstep.bench.axes import AXES
from hardstep.bench.records import Record, to_number
from hardstep.bench.report import scales
from hardstep.bench.report.tables import (
    Cell,
    Column,
    caption,
    cost_cells,
    cost_columns,
    equal,
    memory_known,
    score,
    sortable,
)
from hardstep.bench.summary import Row, Summary, Table, metric_of

X_AXES = tuple(axis.field for axis in AXES.values())


def best_so_far(run: Record) -> dict[str, list[float]]:
    """A run's curve where it improved and where it ended; that is all of a staircase."""
    curve, metric, best = run["curve"], metric_of(run), None
    kept: list[int] = []
    values: list[float] = []
    for index, value in enumerate(map(to_number, curve["value"])):
        if value is not None and (best is None or metric.sign * (value - best) > 0):
            best = value
            kept.append(index)
            values.append(best * metric.factor)
    if best is not None and kept[-1] != len(curve["value"]) - 1:
        kept.append(len(curve["value"]) - 1)
        values.append(values[-1])
    points = {
        name: [_short(curve[name][index]) for index in kept] if name in curve else []
        for name in X_AXES
    }
    return {"value": [_short(value) for value in values], **points}


def _short(value: float) -> float:
    """Six significant digits are more than a picture shows, and much less to store."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def charts(summary: Summary) -> dict[str, Any]:
    """All curves, with axes; one vertical axis for all figures of a task."""
    labels = {row.title: row.name for table in summary.tables for row in table.rows}
    series = sorted(labels, key=lambda label: (labels[label] != summary.reference, label))
    curves = {id(run): best_so_far(run) for table in summary.tables for run in table.runs}
    drawn = []
    for table in summary.tables:
        same = [t for t in summary.tables if _shares_axis(t, table)]
        values = (v for t in same for run in t.runs for v in curves[id(run)]["value"])
        lines = [
            {"series": series.index(row.title), "seed": run["seed"], **curves[id(run)]}
            for row in table.rows
            for run in row.runs
            if curves[id(run)]["value"]
        ]
        drawn.append(_chart(table, scales.linear(values), lines))
    first = sum(labels[label] == summary.reference for label in series)
    titles = {axis.field: axis.title for axis in AXES.values()}
    return {"series": series, "references": first, "titles": titles, "charts": drawn}


def _shares_axis(one: Table, other: Table) -> bool:
    return (one.task, one.data, one.metric) == (other.task, other.data, other.metric)


def _chart(table: Table, y: dict[str, Any], lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    matched = table.budget.field
    ends = {name: [table.budget.amount] if name == matched else [] for name in X_AXES}
    return {
        "number": table.number,
        "metric": f"{table.metric.name}, %" if table.metric.percent else table.metric.name,
        "unit": " %" if table.metric.percent else "",
        "y": y,
        "x": {
            name: scales.logarithmic([*ends[name], *(x for line in lines for x in line[name])])
            for name in X_AXES
        },
        "matched": matched,
        "amount": table.budget.amount,
        "runs": lines,
    }


def chart_frame(table: Table) -> Markup:
    """Where the script draws; the caption says what is in it."""
    runs = len(table.runs)
    title = join(
        element("b", f"Figure {table.number}."),
        f" {table.task} on {table.data} {equal(table.budget)}; {runs} runs.",
    )
    return element(
        "figure",
        element("div", class_="plot"),
        element("figcaption", title),
        id=f"figure-{table.number}",
        class_="chart",
    )


def study_figure(table: Table) -> Markup:
    """A dot per seed and a mark at the mean for every variant, beside what it costs."""
    metric, split = table.metric, table.split
    axis = scales.linear(value for row in table.rows for value in row.scores(split))
    what = "test" if split == "test" else "validation"
    memory, unit = memory_known(table), "%" if metric.percent else ""
    heads = [("variant", ""), (f"{what} {metric.name}", unit), ("mean ± std", unit), ("seeds", "")]
    columns = [*(Column(*head) for head in heads), *cost_columns(memory)]
    rows = [
        (row.title, [*_study_cells(row, table, axis), *cost_cells(row, memory)], False)
        for row in table.rows
    ]
    ticks = [
        element("text", text, x=_share(value, axis), y=14, text_anchor="middle")
        for value, text in axis["ticks"]
    ]
    foot = element("tr", element("td"), element("td", _strip(ticks)),
                   element("td", colspan=len(columns) - 2))  # fmt: skip
    return element(
        "figure",
        caption("Figure", table),
        sortable(f"Figure {table.number}", columns, rows, foot),
        id=f"figure-{table.number}",
        class_="study",
    )


def _study_cells(row: Row, table: Table, axis: dict[str, Any]) -> list[Cell]:
    split, digits = table.split, table.digits
    found = row.mean(split)
    mean = found[0] if found else None
    dots = [
        element(
            "circle",
            element("title", f"seed {seed}: {value:.{digits}f}"),
            cx=_share(value, axis),
            cy=11,
            r=3.5,
        )
        for seed, value in row.scored(split)
    ]
    return [
        Cell(_strip([*_grid(axis), *dots, *_mean_mark(mean, axis)]), mean),
        Cell(score(found, len(row.scores(split)), digits), mean),
        Cell(str(len(row.seeds)), len(row.seeds)),
    ]


def _grid(axis: dict[str, Any]) -> list[Markup]:
    places = [_share(value, axis) for value, _ in axis["ticks"]]
    return [element("line", x1=x, x2=x, y1=0, y2=22, class_="grid") for x in places]


def _mean_mark(mean: float | None, axis: dict[str, Any]) -> list[Markup]:
    if mean is None:
        return []
    x = _share(mean, axis)
    return [element("line", x1=x, x2=x, y1=3, y2=19, class_="mean")]


def _strip(inside: Sequence[Markup]) -> Markup:
    return element("svg", *inside, class_="strip", height=22, aria_hidden="true")


def _share(value: float, axis: dict[str, Any]) -> str:
    """A place on an axis, as a share of its length."""
    return f"{100 * (value - axis['low']) / (axis['high'] - axis['low']):.2f}%"
