"""The picture a run ends with: how it learned, and what it does now."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot
from torch import Tensor, nn

from hardstep.data import Split

INK, ACCENT, QUIET = "#1f2933", "#c2410c", "#9aa5b1"


def draw(
    path: Path,
    title: str,
    model: nn.Module,
    split: Split,
    log: list[dict[str, Any]],
    result: dict[str, Any],
) -> None:
    """Learning curve on the left; a spike raster or the confusion matrix on the right."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    figure.suptitle(
        f"{title} — test accuracy {100 * result['test_accuracy']:.1f} %",
        color=INK,
        fontsize=12,
    )
    _learning_curve(left, log, result)
    if hasattr(model, "spike_trains"):
        _raster(right, model, split)
    else:
        _confusion(right, model, split)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _learning_curve(axes: Any, log: list[dict[str, Any]], result: dict[str, Any]) -> None:
    steps = [row for row in log if row["event"] == "step"]
    scores = [row for row in log if row["event"] == "validation"]
    axes.plot(
        [row["step"] for row in scores],
        [100 * row["value"] for row in scores],
        color=ACCENT,
        marker="o",
        markersize=3,
        label="validation accuracy",
    )
    axes.axvline(result["selected_step"], color=QUIET, linestyle=":", label="selected")
    axes.set(xlabel="step", ylabel="validation accuracy, %", ylim=(0, 100))
    loss = axes.twinx()
    loss.plot([r["step"] for r in steps], [r["loss"] for r in steps], color=QUIET, linewidth=1)
    loss.set_ylabel("training loss", color=QUIET)
    loss.set_ylim(bottom=0)
    axes.set_zorder(loss.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.legend(loc="center right", frameon=True, edgecolor="none", framealpha=0.9)
    axes.set_title("learning", loc="left", fontsize=10)


def _raster(axes: Any, model: Any, split: Split) -> None:
    """Spikes of the hidden and output units for one validation image."""
    with torch.no_grad():
        trains: list[Tensor] = [train[:, 0] for train in model.spike_trains(split.inputs[:1])]
    base, ticks, labels = 0, [], []
    for number, train in enumerate(trains):
        last = number == len(trains) - 1
        times, units = train.nonzero(as_tuple=True)
        axes.scatter(
            times.numpy(),
            (units + base).numpy(),
            s=14 if last else 3,
            marker="|",
            color=ACCENT if last else INK,
        )
        ticks.append(base + train.shape[1] / 2)
        labels.append(f"output\n({train.shape[1]})" if last else f"hidden\n({train.shape[1]})")
        base += train.shape[1] + 6
    counts = trains[-1].sum(dim=0)
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="time step", xlim=(-0.5, len(trains[0]) - 0.5))
    answer, truth = int(counts.argmax()), int(split.labels[0])
    axes.set_title(
        f"spikes for one validation image: a {truth}, read as {answer}", loc="left", fontsize=10
    )


def _confusion(axes: Any, model: nn.Module, split: Split) -> None:
    """Counts of (true, predicted) classes on validation."""
    with torch.no_grad():
        predicted = model(split.inputs).argmax(dim=1)
    num = int(max(predicted.max(), split.labels.max())) + 1
    counts = torch.bincount(split.labels * num + predicted, minlength=num * num).reshape(num, num)
    axes.imshow(counts.numpy(), cmap="Oranges")
    size = min(7.0, 110.0 / num)  # three figures fit a cell
    for row in range(num):
        for column in range(num):
            count = int(counts[row, column])
            if count:
                color = "white" if count > counts.max() / 2 else INK
                axes.text(column, row, count, ha="center", va="center", fontsize=size, color=color)
    axes.set(xlabel="predicted", ylabel="true", xticks=range(num), yticks=range(num))
    axes.tick_params(labelsize=min(10.0, 150.0 / num))
    axes.set_title(f"confusion on {len(split):,} validation images", loc="left", fontsize=10)
