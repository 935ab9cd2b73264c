"""Learning curves on every axis."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from hardstep._text import to_caption
from hardstep.bench.axes import axes_of
from hardstep.bench.records import Record
from hardstep.bench.report.text import write_mean
from hardstep.bench.summary import Row, metric_of

COLORS = ("#2a6f97", "#c1666b", "#6a994e", "#e09f3e", "#7b5ea7", "#4d908e", "#555555", "#9c755f")
LEGEND_COLUMNS = 4  # more would run over the edges


def draw_curves(path: Path, title: str, records: Sequence[Record], origin: str = "") -> None:
    """Validation score over steps, evaluations, time and interactions; one thin line per seed.

    A PNG carries `origin`, what it was made by, as its description.
    """
    axes = axes_of(records)
    size = (4 * len(axes), 4)
    figure, panels = pyplot.subplots(1, len(axes), figsize=size, sharey=True, layout="constrained")
    methods = list(dict.fromkeys(record["method"] for record in records))
    for panel, axis in zip(panels, axes.values(), strict=True):
        for method, color in zip(methods, COLORS * (1 + len(methods) // len(COLORS)), strict=False):
            row = Row(method, tuple(r for r in records if r["method"] == method))
            _draw_lines(panel, row, axis.field, color)
        panel.set_xlabel(axis.title)
        _log_scale(panel)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.92")
    metric = metric_of(records[0])
    unit = ", %" if metric.percent else ""
    panels[0].set_ylabel(to_caption(f"best validation {metric.name} so far{unit}"))
    figure.suptitle(to_caption(title), x=0.01, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    columns = min(len(labels), LEGEND_COLUMNS)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    described = {"Description": origin} if path.suffix.lower() == ".png" else None
    figure.savefig(path, dpi=140, metadata=described)
    pyplot.close(figure)


def origin_of(path: Path) -> str:
    """What a picture was made by; empty if it does not say so, or is no picture."""
    try:
        with Image.open(path) as image:
            return str(image.info.get("Description", ""))
    except (OSError, ValueError):
        return ""


def _log_scale(panel: Any) -> None:
    """Few and plain numbers: matplotlib's own run into each other where there is one decade."""
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _draw_lines(panel: Any, row: Row, axis: str, color: str) -> None:
    metric = row.metric
    better = max if metric.higher_is_better else min
    score = write_mean(row.mean("test"), len(row.runs), metric)
    for number, record in enumerate(row.runs):
        curve = record["curve"]
        known = [i for i, value in enumerate(curve["value"]) if value is not None]
        best = accumulate((curve["value"][i] for i in known), better)
        panel.plot(
            [curve[axis][i] for i in known] if axis in curve else [],
            [metric.factor * value for value in best] if axis in curve else [],
            color=color,
            linewidth=1.2,
            alpha=0.8,
            marker="o" if len(known) == 1 else None,  # a line needs two points
            label=to_caption(f"{row.label} (test {score})") if number == 0 else None,
        )
