"""The picture of a trained policy: how it learned, and what it does in one episode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import EngFormatter

from hardstep._files import explain_failed_write, write_atomically
from hardstep._text import to_caption
from hardstep.rl.film import Film
from hardstep.rl.spaces import Array

INK, ACCENT, QUIET = "#1f2933", "#c2410c", "#9aa5b1"
ROWS, COLUMNS = 2, 3  # of frames
LINES = (ACCENT, INK, QUIET, "#2563eb", "#15803d", "#d97706", "#7c3aed", "#db2777")


def draw_policy(
    path: Path,
    title: str,
    log_rows: Sequence[dict[str, Any]],
    result: dict[str, Any],
    film: Film | None,
) -> None:
    """Learning curve on the left; on the right six frames of an episode, or its joints' angles.

    Args:
        path: Of the PNG.
        title: Above all.
        log_rows: Of log.jsonl; steps have "loss", validations "value".
        result: May have "selected_step", the step of the film's policy, which is marked.
        film: Of one episode; the curve is alone without it.

    Raises:
        DataError: The picture cannot be written.
    """
    figure = pyplot.figure(figsize=(12, 4.6), layout="constrained")
    try:
        figure.suptitle(to_caption(title), color=INK, fontsize=12)
        parts = figure.subfigures(1, 1 if film is None else 2, squeeze=False)[0]
        _draw_curve(parts[0].subplots(), log_rows, result)
        if film is not None and film.frames is not None:
            _draw_strip(parts[1], film, film.frames)
        elif film is not None:
            _draw_lines(parts[1].subplots(), film)
        with explain_failed_write(path), write_atomically(path) as temporary:
            figure.savefig(temporary, dpi=150, format="png")
    finally:
        pyplot.close(figure)


def _draw_curve(axes: Any, rows: Sequence[dict[str, Any]], result: dict[str, Any]) -> None:
    """Returns over interactions, or over steps where the log does not count interactions."""
    # The log has null where a number was not one.
    steps = [row for row in rows if row["event"] == "step" and row.get("loss") is not None]
    scores = [row for row in rows if row["event"] == "validation" and row.get("value") is not None]
    counted = [row for row in [*steps, *scores] if row.get("interactions") is not None]
    key = "interactions" if counted else "step"
    if steps := [row for row in steps if row.get(key) is not None]:
        heights = [-row["loss"] for row in steps]
        label = "mean return of the candidates"
        axes.plot([row[key] for row in steps], heights, color=QUIET, linewidth=1, label=label)
    if scores := [row for row in scores if row.get(key) is not None]:
        places, values = [row[key] for row in scores], [row["value"] for row in scores]
        label = "return in validation episodes"
        axes.plot(places, values, color=ACCENT, marker="o", markersize=3, label=label)
        chosen = [row[key] for row in scores if row.get("step") == result.get("selected_step")]
        if chosen:
            axes.axvline(chosen[0], color=QUIET, linestyle=":", label="policy of the film")
    axes.set(xlabel="interactions with the environment" if counted else "step", ylabel="return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(y=0.08)
    if steps or scores:
        axes.legend(loc="best", edgecolor="none", framealpha=0.9)
    axes.set_title("learning", loc="left", fontsize=10)


def _draw_strip(part: Any, film: Film, frames: Array) -> None:
    """Six moments, evenly spread from the first to the last."""
    part.suptitle(_name_episode(film), x=0.02, ha="left", fontsize=10)
    panels = part.subplots(ROWS, COLUMNS).ravel()
    chosen = np.linspace(0, len(frames) - 1, len(panels)).round().astype(int)
    for place, (panel, number) in enumerate(zip(panels, chosen, strict=True)):
        panel.imshow(frames[number])
        panel.set_anchor("S" if place < COLUMNS else "N")  # wide frames leave no gap between rows
        panel.set(xticks=[], yticks=[])
        panel.set_xlabel(f"step {film.steps[number]:,}", fontsize=9, color=INK)
        for edge in panel.spines.values():
            edge.set_color(QUIET)


def _draw_lines(axes: Any, film: Film) -> None:
    """Angles of joints over time, or observations: as many as can be told apart."""
    for color, name, values in zip(LINES, film.names, film.values.T, strict=False):
        label = to_caption(name.replace("_", " "))
        axes.plot(film.steps, values, color=color, linewidth=1.2, label=label)
    what = "angle of the joint, radians" if film.are_angles else "observation"
    axes.set(xlabel="step of the episode", ylabel=what)
    axes.margins(x=0.01)
    columns = min(len(film.names), 4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, frameon=False)
    axes.set_title(_name_episode(film), loc="left", fontsize=10)


def _name_episode(film: Film) -> str:
    text = f"one episode of {film.environment}, seed {film.seed:,}: return {film.total:,.0f}"
    return to_caption(text.replace("return -", "return −"))
