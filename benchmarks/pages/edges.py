"""How often a sweep ended at the outermost value it could reach, a hint that it ended too soon."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hardstep import tasks
from hardstep._pages import markdown_table
from hardstep.bench.axes import AXES
from hardstep.bench.methods import METHODS
from hardstep.bench.summary import Row, Summary, Table
from hardstep.bench.tuning import STAGES, Setting, settings_of
from hardstep.bench.tuning import grid as configurations
from hardstep.tasks.files import is_address

SUITES = {"digits": "digits", "mnist": "the paper's size"}


def table(summary: Summary) -> str:
    """Tasks with a setting at the edge, of those that were tuned, by method and axis."""
    tuned: Counter[tuple[str, ...]] = Counter()
    at_edge: Counter[tuple[str, ...]] = Counter()
    for found in summary.tables:
        for method in METHODS:
            row = found.row(method)
            if row is not None and (settings := _tuned(found, row)):
                place = (found.data, found.budget.axis, method)
                tuned[place] += 1
                at_edge[place] += _is_at_edge(settings, row.runs[0]["options"])
    columns = [(d, a) for d in SUITES for a in AXES if any(k[:2] == (d, a) for k in tuned)]
    head = [
        "method",
        *(f"{SUITES[d]}, {AXES[a].title.removeprefix('wall-clock ')}" for d, a in columns),
    ]
    lines = []
    for method in METHODS:
        places = [(*column, method) for column in columns]
        each = [f"{at_edge[p]} of {tuned[p]}" if tuned[p] else "–" for p in places]
        if any(tuned[p] for p in places):
            lines.append([method, *each])
    return markdown_table(head, lines)


def _tuned(table: Table, row: Row) -> list[Setting]:
    """What a sweep set; nothing where the method ran as it comes."""
    if is_address(table.task):  # a record is data: the file that it names does not run
        return []
    settings = settings_of(tasks.find(table.task, table.data), row.method, table.budget.axis)
    options = row.runs[0].get("options") or {}
    return [s for s in settings if s.ratio > 1] if all(s.name in options for s in settings) else []


def _is_at_edge(settings: Sequence[Setting], options: dict[str, Any]) -> bool:
    return any(options[setting.name] in _ends(setting, settings) for setting in settings)


def _ends(setting: Setting, settings: Sequence[Setting]) -> tuple[Any, Any]:
    """The least and the largest value of all stages."""
    ends = []
    for extreme in (min, max):
        centers = {s.name: s.center for s in settings}
        for stage in STAGES:
            found = [o[setting.name] for o in configurations(settings, centers, stage)]
            centers[setting.name] = extreme(found)
        ends.append(centers[setting.name])
    return ends[0], ends[1]
