"""The second table as a chart: a bar per network, a dot per block of its tensors."""

from pathlib import Path
from typing import Any

from benchmarks.step.page import show_figure
from benchmarks.step.records import Record
from benchmarks.step.report import INK, OURS

CONVOLUTION, OTHER = "#c8553d", "#8a8a8a"


def draw(found: list[Record], path: Path) -> None:
    """Bars of forward ÷ probe, and where the single tensors stand."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.6 * len(found) + 2.0), layout="constrained")
    for place, record in enumerate(found):
        _row(axes, place, record)
    figures = [record["ours"]["figure"]["wall"] for record in found]
    labels = [
        f"{record['title']}   {show_figure(f)}" for record, f in zip(found, figures, strict=True)
    ]
    axes.set_yticks(range(len(found)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_title("How many probes in the time of one forward pass", loc="left")
    _legend(axes)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _row(axes: Any, place: int, record: Record) -> None:
    reached = record["ours"]["figure"]["wall"]
    axes.barh(place, reached - 1, left=1, height=0.5, color=OURS, alpha=0.85)
    for block in record["explained"]["blocks"].values():
        if "figure" not in block:
            continue
        color = (
            CONVOLUTION
            if any(len(shape) > 2 and shape[0] > 1 for shape in block["shapes"])
            else OTHER
        )
        axes.plot(block["figure"]["wall"], place, "o", color=color, markersize=5, mec="white")
    for name, style in (("must", "-"), ("aim", ":")):
        if record[name]:
            axes.plot([record[name]] * 2, [place - 0.3, place + 0.3], style, color=INK)


def _legend(axes: Any) -> None:
    from matplotlib.lines import Line2D

    shown = [
        Line2D([], [], color=OURS, linewidth=6, label="whole step"),
        Line2D([], [], color=CONVOLUTION, marker="o", linestyle="", label="a convolution"),
        Line2D([], [], color=OTHER, marker="o", linestyle="", label="other tensors"),
        Line2D([], [], color=INK, label="must"),
        Line2D([], [], color=INK, linestyle=":", label="aim"),
    ]
    axes.legend(
        handles=shown, loc="upper right", bbox_to_anchor=(1.0, -0.08), ncols=3, frameon=False
    )
