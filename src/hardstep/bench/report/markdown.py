"""The report as Markdown, for pages that live with the code: tables, and where they came from."""

from collections import Counter

from hardstep._pages import markdown_table, safe_in_markdown
from hardstep.bench.axes import AXES
from hardstep.bench.report.overview import Overview, legend, overviews
from hardstep.bench.report.sources import distinct, list_options, seed_ranges, versions
from hardstep.bench.report.tables import (
    VERDICTS,
    Column,
    comparison_cells,
    comparison_columns,
    cost_cells,
    cost_columns,
    equal,
    memory_known,
    plural,
    score,
)
from hardstep.bench.summary import Summary, Table

INTRO = (
    "Generated from records by `hardstep report`, not edited by hand. Test scores are of the "
    "weights that validation selected, mean ± standard deviation over seeds. A win or a loss means "
    "that every seed agrees; p is the exact two-sided sign-flip test, with the least value that so "
    "many seeds can give, and not corrected for the number of comparisons."
)


def render_markdown(summary: Summary) -> str:
    """The whole page."""
    parts = ["# Results", INTRO, _counts(summary), *(_verdicts(summary, axis) for axis in AXES)]
    if scores := overviews(summary):
        parts += [*map(_overview, scores), legend(summary.reference)]
    for place in dict.fromkeys((table.task, table.data) for table in summary.tables):
        parts.append(safe_in_markdown(f"## {place[0]} on {place[1]}"))
        mine = [table for table in summary.tables if (table.task, table.data) == place]
        parts += [part for table in mine for part in _comparison(table, summary.reference)]
    if summary.studies:
        parts.append("## Ablations")
    parts += [part for table in summary.studies for part in _study(table)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _counts(summary: Summary) -> str:
    shown = len(summary.runs) - len(summary.tuning)
    skipped = f"; {len(summary.skipped)} records were skipped" if summary.skipped else ""
    return f"{shown:,} runs, and {len(summary.tuning):,} of sweeps before them{skipped}."


def _verdicts(summary: Summary, axis: str) -> str:
    """Wins, ties and losses at one thing equal, by baseline."""
    verdicts = summary.verdicts(axis)
    if not verdicts:
        return ""
    head = ["baseline", *map(plural, VERDICTS)]
    rows = [[name, *(str(found[w]) for w in VERDICTS)] for name, found in verdicts.items()]
    total = sum(verdicts.values(), Counter())
    rows.append(["**all**", *(f"**{total[word]}**" for word in VERDICTS)])
    title = f"## At equal {AXES[axis].title}: {sum(total.values())} comparisons"
    return f"{title}\n\n{markdown_table(head, rows)}"


def _overview(overview: Overview) -> str:
    head = [column.title for column in overview.columns]
    rows = [[name, *(cell.text for cell in cells)] for name, cells in overview.lines()]
    return f"## {overview.title}\n\n{markdown_table(head, rows)}"


def _comparison(table: Table, reference: str) -> list[str]:
    head = ["method", *map(_title, comparison_columns(table))]
    rows = [
        [row.title, *(cell.text for cell in comparison_cells(row, table, reference))]
        for row in table.rows
    ]
    return [f"### {equal(table.budget).capitalize()}", markdown_table(head, rows), _source(table)]


def _study(table: Table) -> list[str]:
    memory = memory_known(table)
    unit = "%" if table.metric.percent else ""
    scores = Column(f"{table.split} {table.metric.name}", unit)
    head = [table.study, *map(_title, (scores, Column("seeds"), *cost_columns(memory)))]
    rows = [
        [
            row.title,
            score(row.mean(table.split), len(row.scores(table.split)), table.digits),
            seed_ranges(row.runs),
            *(cell.text for cell in cost_cells(row, memory)),
        ]
        for row in table.rows
    ]
    title = safe_in_markdown(
        f"### {table.study}: {table.task} on {table.data}, {equal(table.budget)}"
    )
    return [safe_in_markdown(title), markdown_table(head, rows), _source(table)]


def _title(column: Column) -> str:
    return f"{column.title}, {column.unit}" if column.unit else column.title


def _source(table: Table) -> str:
    """Folded: options of every row, and what the runs were made with."""
    dates = sorted(date[:10] for date in distinct(table.runs, "date"))
    facts = {name: distinct(table.runs, name) for name in ("command", "commit", "machine")}
    facts["versions"] = list(dict.fromkeys(filter(None, map(versions, table.runs))))
    facts["date"] = list(dict.fromkeys((dates[0], dates[-1]))) if dates else []
    lines = [
        f"- {row.title}: seeds {seed_ranges(row.runs)}; {list_options(row.runs)}"
        for row in table.rows
    ]
    lines += [f"- {name}: {'; '.join(values)}" for name, values in facts.items() if values]
    inside = "\n".join(map(safe_in_markdown, lines))
    return f"<details><summary>options and provenance</summary>\n\n{inside}\n\n</details>"
