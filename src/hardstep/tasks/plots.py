"""The picture a run ends with: how it learned, and what it does now."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot
from torch import Tensor, nn

from hardstep._files import explain_failed_write, write_atomically
from hardstep._text import to_caption
from hardstep.data import Batches, Split
from hardstep.evaluation import call_model, isolate
from hardstep.nn import SpikingNet
from hardstep.tasks.task import SCORE_BATCH, Task

INK, ACCENT, QUIET = "#1f2933", "#c2410c", "#9aa5b1"
MOST_NUMBERED = 30  # classes whose counts can still be read in a confusion matrix
MOST_POINTS = 5000  # of predicted against true
MOST_UNITS = 100  # of a hidden layer of pictures in a raster; beside thousands, ten outputs vanish


def draw(
    path: Path,
    task: Task,
    model: nn.Module,
    split: Split,
    log: list[dict[str, Any]],
    result: dict[str, Any],
) -> None:
    """Learning curve on the left; on the right what the model does with validation examples.

    That is the task's own panel, a spike raster, the confusion of classes, or predicted against
    true numbers. Where outputs are of another kind the curve is alone.

    Raises:
        DataError: The picture cannot be written.
    """
    behavior = _behavior(task, model, split)
    num = 1 if behavior is None else 2
    figure, panels = pyplot.subplots(1, num, figsize=(12, 4.6), layout="constrained", squeeze=False)
    score = task.metric.format(result[task.key("test")])
    title = to_caption(f"{task.title} — test {task.metric.name} {score}")
    figure.suptitle(title, color=INK, fontsize=12)
    _learning_curve(panels[0, 0], task, log, result)
    if behavior is not None:
        behavior(panels[0, 1])
    with explain_failed_write(path), write_atomically(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    pyplot.close(figure)


def _learning_curve(
    axes: Any, task: Task, log: list[dict[str, Any]], result: dict[str, Any]
) -> None:
    # The log has null where a number was not one.
    steps = [row for row in log if row["event"] == "step" and row["loss"] is not None]
    scores = [row for row in log if row["event"] == "validation" and row["value"] is not None]
    label = to_caption(f"validation {task.metric.name}")
    axes.plot(
        [row["step"] for row in scores],
        [(100 if task.metric.percent else 1) * row["value"] for row in scores],
        color=ACCENT,
        marker="o",
        markersize=3,
        label=label,
    )
    axes.axvline(result["selected_step"], color=QUIET, linestyle=":", label="selected checkpoint")
    axes.set(xlabel="step", ylabel=label)
    if task.metric.percent:
        axes.set(ylabel=f"{label}, %", ylim=(0, 100))
    loss = axes.twinx()
    losses = [row["loss"] for row in steps]
    (curve,) = loss.plot([row["step"] for row in steps], losses, color=QUIET, linewidth=1)
    loss.set_ylabel("training loss", color=QUIET)
    if min(losses, default=0.0) >= 0.0:
        loss.set_ylim(bottom=0)
    axes.set_zorder(loss.get_zorder() + 1)
    axes.patch.set_visible(False)
    curve.set_label("training loss")
    lines = [*axes.get_lines(), curve]
    axes.legend(handles=lines, loc="center right", edgecolor="none", framealpha=0.9)
    axes.set_title("learning", loc="left", fontsize=10)


def _behavior(task: Task, model: nn.Module, split: Split) -> Callable[[Any], None] | None:
    """What draws the right-hand panel."""
    if task.panel is not None:
        panel = task.panel
        return lambda axes: panel(axes, model, split)
    classes = split.labels.dtype == torch.long and split.labels.dim() == 1
    if isinstance(model, SpikingNet) and classes:
        return partial(_raster, model=model, split=split)
    answers = _answers(model, split)
    if answers is None:
        return None
    if answers.dim() == 2 and classes:
        return partial(_confusion, predicted=answers.argmax(dim=1), labels=split.labels)
    if answers.numel() == split.labels.numel():
        return partial(_against, answers=answers, labels=split.labels)
    return None


@torch.no_grad()
def _answers(model: nn.Module, split: Split) -> Tensor | None:
    """The model's outputs in evaluation mode; None if they are not one tensor row by example."""
    found = []
    with isolate(model):
        model.eval()
        for inputs, _ in Batches(split, SCORE_BATCH, seed=0, shuffle=False):
            output = call_model(model, inputs)
            if not isinstance(output, Tensor) or output.shape[:1] != inputs.shape[:1]:
                return None
            found.append(output)
    return torch.cat(found)


def _raster(axes: Any, model: SpikingNet, split: Split) -> None:
    """Spikes of the hidden and output units for one validation example."""
    with torch.no_grad():
        layers = model.spike_trains(split.inputs[:1])
    trains: list[Tensor] = [layer[:, 0].flatten(start_dim=1) for layer in layers]
    base, ticks, labels = 0, [], []
    for number, whole in enumerate(trains):
        last = number == len(trains) - 1
        name = "output" if last else "hidden"
        train, words = _thin_out(whole) if layers[number].dim() > 3 else (whole, "")
        times, units = train.nonzero(as_tuple=True)
        axes.scatter(
            times.numpy(),
            (units + base).numpy(),
            s=14 if last else 3,
            marker="|",
            color=ACCENT if last else INK,
        )
        ticks.append(base + train.shape[1] / 2)
        labels.append(f"{name}\n({words}{whole.shape[1]:,})")
        base += train.shape[1] + 6
    counts = trains[-1].sum(dim=0)
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="time step", xlim=(-0.5, len(trains[0]) - 0.5), ylim=(-3, base - 3))
    answer, truth = int(counts.argmax()), int(split.labels[0])
    axes.set_title(
        f"spikes for one validation example: a {truth}, read as {answer}", loc="left", fontsize=10
    )


def _thin_out(train: Tensor) -> tuple[Tensor, str]:
    """At most so many units of a layer, evenly chosen, and how many of them."""
    every = -(-train.shape[1] // MOST_UNITS)
    chosen = train[:, ::every]
    return chosen, f"{chosen.shape[1]} of " if every > 1 else ""


def _confusion(axes: Any, predicted: Tensor, labels: Tensor) -> None:
    """Counts of (true, predicted) classes."""
    num = int(max(predicted.max(), labels.max())) + 1
    counts = torch.bincount(labels * num + predicted, minlength=num * num).reshape(num, num)
    axes.imshow(counts.numpy(), cmap="Oranges")
    size = min(7.0, 110.0 / num)  # three figures fit a cell
    for row, column in counts.nonzero().tolist() if num <= MOST_NUMBERED else ():
        count = int(counts[row, column])
        color = "white" if count > counts.max() / 2 else INK
        axes.text(column, row, count, ha="center", va="center", fontsize=size, color=color)
    axes.set(xlabel="predicted", ylabel="true")
    if num <= MOST_NUMBERED:
        axes.set(xticks=range(num), yticks=range(num))
        axes.tick_params(labelsize=min(10.0, 150.0 / num))
    axes.set_title(f"confusion on {len(labels):,} validation examples", loc="left", fontsize=10)


def _against(axes: Any, answers: Tensor, labels: Tensor) -> None:
    """Predicted numbers over true ones; on the line they are equal."""
    true, predicted = labels.double().flatten(), answers.double().flatten()
    every = -(-len(true) // MOST_POINTS)
    axes.scatter(true[::every].numpy(), predicted[::every].numpy(), s=8, color=ACCENT, alpha=0.5)
    ends = [
        float(torch.minimum(true, predicted).min()),
        float(torch.maximum(true, predicted).max()),
    ]
    axes.plot(ends, ends, color=QUIET, linewidth=1)
    axes.set(xlabel="true", ylabel="predicted")
    axes.set_title(
        f"predicted and true on {len(labels):,} validation examples", loc="left", fontsize=10
    )
