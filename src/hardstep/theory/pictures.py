"""Figures of diagnoses."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from hardstep.optim.diagnosis import Probed


def draw_flat_pairs(path: Path, title: str, sweep: Sequence[Probed], here: Probed) -> None:
    """Shares of flat pairs, dead rows and crossing probes over the probe radius."""
    radii = [probed.probe_radius for probed in sweep]
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, label, color in (
        ("flat_pairs", "pairs of probes with the same loss", "#2a6f97"),
        ("dead_rows", "constant rows", "#c1666b"),
        ("crossed", "probes whose loss differs from the loss here", "#6a994e"),
    ):
        shares = [100 * getattr(probed, name) for probed in sweep]
        axes.plot(radii, shares, marker="o", markersize=4, label=label, color=color)
    axes.axvline(here.probe_radius, color="0.4", linestyle=":", label="present probe radius")
    axes.set_xscale("log")
    axes.set_xlabel("probe radius")
    axes.set_ylabel("share, %")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
