"""The page itself: one file, no network, readable on a phone, in the dark and on paper."""

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from itertools import groupby

from hardstep import __version__
from hardstep._pages import Markup, element, embed_json, html_page, join
from hardstep.bench.axes import AXES, axes_of
from hardstep.bench.report.figures import chart_frame, charts, study_figure
from hardstep.bench.report.overview import legend, overview_table, overviews
from hardstep.bench.report.sources import source_sections
from hardstep.bench.report.tables import comparison_table, count, verdict_table
from hardstep.bench.summary import Summary, Table

FIRST_AXIS = "evals"  # steps would flatter methods whose steps are expensive


def render(summary: Summary) -> str:
    """The whole page; the same summary give the same bytes."""
    script, style = _asset("page.js"), _asset("page.css")
    sections = [
        ("summary", "Summary", _summary(summary)),
        ("tasks", "Results by task", _tasks(summary)),
        ("curves", "Learning curves", _curves(summary)),
        ("ablations", "Ablations", _ablations(summary)),
        ("sources", "Settings and provenance", _sources(summary)),
    ]
    shown = [section for section in sections if section[2]]
    links = [element("a", title, href=f"#{name}") for name, title, _ in shown]
    body = [
        element("section", element("h2", title), *inside, id=name) for name, title, inside in shown
    ]
    whole = [
        element("header", element("h1", "Methods compared"), element("nav", *links)),
        element("main", *body),
        element("footer", f"Written by hardstep {__version__} from records of runs."),
        f'<script type="application/json" id="data">{embed_json(charts(summary))}</script>',
        f"<script>{script}</script>",
    ]
    title = f"hardstep report: {_tasks_named(summary)}"
    return html_page(title, style, "\n".join(whole), head=f"{_policy(script)}\n")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Forbids every request, and every script but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def _tasks_named(summary: Summary) -> str:
    return ", ".join(sorted({run["task"] for run in summary.runs}))


def _summary(summary: Summary) -> list[Markup]:
    runs = summary.runs
    compared = sum(len(table.runs) for table in summary.tables)
    facts = [
        ("run", "runs", len(runs)),
        ("task", "tasks", len({(run["task"], run["data"]) for run in runs})),
        ("method", "methods", len({run["method"] for run in runs})),
        ("seed", "seeds", len({run["seed"] for run in runs})),
        ("record skipped", "records skipped", len(summary.skipped)),
    ]
    numbers = [
        element("div", element("dt", one if number == 1 else several), element("dd", count(number)))
        for one, several, number in facts
    ]
    purposes = (
        f"{count(compared)} runs compare methods, "
        f"{count(sum(len(study.runs) for study in summary.studies))} belong to ablations, "
        f"{count(len(summary.tuning))} tuned settings on validation and are not in the tables."
    )
    if summary.repeated:
        purposes += f" {count(summary.repeated)} runs were recorded again; the last one counts."
    return [
        element("dl", *numbers, class_="numbers"),
        element("p", purposes),
        *_skipped(summary.skipped),
        *_verdicts(summary),
    ]


def _skipped(sentences: Iterable[str]) -> list[Markup]:
    items = [element("li", sentence) for sentence in sentences]
    if not items:
        return []
    return [element("details", element("summary", "What was skipped"), element("ul", *items))]


def _verdicts(summary: Summary) -> list[Markup]:
    if not summary.tables:
        return []
    comparisons = sum(v.total() for axis in AXES for v in summary.verdicts(axis).values())
    explanation = join(
        element("b", f"{summary.reference} against each baseline. "),
        f"A win is a task and budget at which the test score of {summary.reference} was better "
        "than the baseline's with every seed both have; a loss, at which it was worse with every "
        f"seed; all else is a tie. {count(comparisons)} comparisons were made; p-values are not "
        "corrected for that.",
    )
    shown = axes_of(run for table in summary.tables for run in table.runs)
    tables = [verdict_table(summary, axis) for axis in shown]
    scores = [overview_table(overview) for overview in overviews(summary)]
    note = [element("p", legend(summary.reference), class_="note")] if scores else []
    return [element("p", explanation), element("div", *tables, class_="tallies"), *scores, *note]


def _tasks(summary: Summary) -> list[Markup]:
    if not summary.tables:
        return []
    reference = summary.reference
    explanation = (
        "Scores are means ± sample standard deviations over seeds; validation selected the "
        "weights, and the test set was read once. A margin is the mean over common seeds of what "
        f"{reference} is better by, so it is negative where {reference} is worse; p is of the "
        "exact two-sided sign-flip test, with the smallest value that so many seeds can give. "
        "Steps, evaluations and seconds are means per run. A click on a heading sorts."
    )
    parts = [element("p", explanation)]
    for title, tables in _by_task(summary.tables):
        parts.append(element("h3", title))
        parts += [comparison_table(table, summary) for table in tables]
    return parts


def _by_task(tables: Iterable[Table]) -> Iterable[tuple[str, list[Table]]]:
    for (task, data), found in groupby(tables, key=lambda table: (table.task, table.data)):
        yield f"{task} on {data}", list(found)


def _curves(summary: Summary) -> list[Markup]:
    if not summary.tables:
        return []
    buttons = [
        element(
            "button",
            axis.title,
            type="button",
            data_axis=axis.field,
            aria_pressed="true" if name == FIRST_AXIS else "false",
        )
        for name, axis in axes_of(run for t in summary.tables for run in t.runs).items()
    ]
    bar = element(
        "div",
        element("div", "against ", *buttons, class_="switch", role="group", aria_label="Axis"),
        element("div", class_="legend", role="group", aria_label="Methods shown"),
        class_="bar",
    )
    explanation = (
        "Best validation score so far, one line per seed. The dashed line is the budget, where "
        "the axis is the one that was equal. A method is hidden and shown by its name."
    )
    parts = [element("p", explanation), element("noscript", "Curves need JavaScript."), bar]
    for title, tables in _by_task(summary.tables):
        parts.append(element("h3", title))
        parts.append(element("div", *map(chart_frame, tables), class_="charts"))
    return parts


def _ablations(summary: Summary) -> list[Markup]:
    if not summary.studies:
        return []
    parts = [element("p", "One dot per seed; the bar is the mean.")]
    for study, tables in groupby(summary.studies, key=lambda table: table.study):
        parts.append(element("h3", f"Study of {study}"))
        parts += [study_figure(table) for table in tables]
    return parts


def _sources(summary: Summary) -> list[Markup]:
    explanation = "What the runs behind each table and figure were; distinct values only."
    return [element("p", explanation), *source_sections(summary)]
