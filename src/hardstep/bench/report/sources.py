"""Where numbers came from: options, seeds, commit, machine, versions, commands and dates."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from hardstep._pages import Markup, element, join
from hardstep.bench.records import Record
from hardstep.bench.report.tables import equal
from hardstep.bench.summary import Summary, Table, options_of

VERSIONS = ("hardstep", "torch", "python")
SHOWN = 6  # distinct values of a fact; the records have them all


def source_sections(summary: Summary) -> list[Markup]:
    """What can be unfolded for each task."""
    blocks: dict[tuple[str, str], list[Markup]] = defaultdict(list)
    for table in summary.tables:
        blocks[table.task, table.data].append(_table_block(table))
    for table in summary.studies:
        blocks[table.task, table.data].append(_study_block(table))
    tuning: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for run in summary.tuning:
        tuning[run["task"], run["data"]].append(run)
    for place, runs in tuning.items():
        blocks[place].append(_tuning_block(runs))
    return [
        element("details", element("summary", f"{task} on {data}"), *found)
        for (task, data), found in sorted(blocks.items())
    ]


def _table_block(table: Table) -> Markup:
    number = table.number
    title = join(
        element("a", f"Table {number}", href=f"#table-{number}"),
        " and ",
        element("a", f"Figure {number}", href=f"#figure-{number}"),
        f": {equal(table.budget)}",
    )
    return _block(table, title, "method")


def _study_block(table: Table) -> Markup:
    title = join(
        element("a", f"Figure {table.number}", href=f"#figure-{table.number}"),
        f": study of {table.study} {equal(table.budget)}",
    )
    return _block(table, title, "variant")


def _tuning_block(runs: Sequence[Record]) -> Markup:
    """How much tuning every method got; its many options are in the records."""
    by_method: dict[str, list[Record]] = defaultdict(list)
    for run in runs:
        by_method[run["method"]].append(run)
    tried = "; ".join(
        f"{method}: {len(found)} runs of {len(set(map(options_of, found)))} "
        f"configurations, seeds {seed_ranges(found)}"
        for method, found in sorted(by_method.items())
    )
    return element(
        "section",
        element("h4", "Tuning, on validation only"),
        element("p", tried),
        _facts(runs),
    )


def _block(table: Table, title: Markup, kind: str) -> Markup:
    """Options as a table; rows that agree on them are written once."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in table.rows:
        alike[seed_ranges(row.runs), list_options(row.runs)].append(row.title)
    body = [
        element(
            "tr",
            element("th", ", ".join(labels), scope="row"),
            element("td", seeds),
            element("td", options),
        )
        for (seeds, options), labels in alike.items()
    ]
    head = element("tr", *(element("th", text, scope="col") for text in (kind, "seeds", "options")))
    inside = element("table", element("thead", head), element("tbody", *body))
    box = element("div", inside, class_="box", tabindex=0, role="region", aria_label="Options")
    return element(
        "section",
        element("h4", title),
        box,
        _facts(table.runs, distinct(table.runs, "settings")),
        id=f"source-{table.number}",
    )


def list_options(runs: Sequence[Record]) -> str:
    """What was set, of every configuration."""
    texts = []
    for options in dict.fromkeys(map(options_of, runs)):
        pairs = json.loads(options).items()
        texts.append(", ".join(f"{name} = {value}" for name, value in pairs) or "defaults")
    return "; ".join(texts)


def _facts(runs: Sequence[Record], settings: Sequence[str] = ()) -> Markup:
    """Distinct values only: most runs of a table share all of them."""
    facts = {name: distinct(runs, name) for name in ("commit", "machine")}
    facts["versions"] = list(dict.fromkeys(filter(None, map(versions, runs))))
    facts["command"] = distinct(runs, "command")
    dates = sorted(distinct(runs, "date"))
    if settings:  # PolyStep's; earlier records and other methods have none
        facts["settings"] = list(settings)
    facts["date"] = dates if len(dates) < 2 else [f"{dates[0]} to {dates[-1]}"]
    items = []
    for name, values in facts.items():
        shown = values[:SHOWN] or ["not recorded"]
        more = len(values) - len(shown)
        if more > 0:
            shown.append(f"and {more} more")
        items.append(element("dt", name))
        items += [element("dd", value) for value in shown]
    return element("dl", *items, class_="facts")


def versions(run: Record) -> str:
    """Of what it ran on."""
    known = [f"{name} {run[name]}" for name in VERSIONS if run.get(name)]
    return ", ".join(known)


def distinct(runs: Iterable[Record], name: str) -> list[str]:
    """Values of a field in order of appearance, without empty ones."""
    values = (str(run.get(name) or "") for run in runs)
    return [value for value in dict.fromkeys(values) if value]


def seed_ranges(runs: Iterable[Record]) -> str:
    """Seeds in order, with neighbors as a range: 0–4, 10."""
    ranges: list[list[int]] = []
    for seed in sorted({run["seed"] for run in runs}):
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1][1:] = [seed]
        else:
            ranges.append([seed])
    return ", ".join("–".join(map(str, ends)) for ends in ranges)
