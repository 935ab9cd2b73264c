"""The figures of the theory page: what the checks measure, over a range."""

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from hardstep.theory.exact_step_remainder import tabulate_remainders
from hardstep.theory.flat_pair import COORDINATES, tabulate_flat_pairs
from hardstep.theory.ghost_drift import tabulate_ghost_means, tabulate_ghost_steps
from hardstep.theory.kl_softmax import tabulate_violation
from hardstep.theory.numerics import Curve
from hardstep.theory.occupancy import tabulate_occupancy
from hardstep.theory.smoothing_blowup import LOSSES, tabulate_blow_up
from hardstep.theory.spheres import best_axis_overlap
from hardstep.theory.stable_schedules import tabulate_drifts
from hardstep.theory.stable_schedules_walks import tabulate_amplitudes, tabulate_excursions
from hardstep.theory.two_kernels import tabulate_gradients

BLUE, RED, GREEN, GRAY = "#2a6f97", "#c1666b", "#6a994e", "0.45"
MARK = {"marker": "o", "markersize": 4}
STEP = r"$r_s\varepsilon$"  # the length of a step
HOLLOW = MARK | {"markerfacecolor": "white"}


class Figure(NamedTuple):
    """A figure, and the checks it belongs to."""

    group: str
    draw: Callable[[Path], None]


FIGURES: dict[str, Figure] = {}
Fill = Callable[..., None]  # of one panel after the other


def figure(
    name: str, group: str, panels: int = 1, height: float = 3.6, share_y: bool = False
) -> Callable[[Fill], Fill]:
    """Register what fills the panels, side by side, of a figure 7 inches wide."""

    def register(fill: Fill) -> Fill:
        @wraps(fill)
        def draw(path: Path) -> None:
            drawn, (axes,) = pyplot.subplots(
                1, panels, figsize=(7, height), layout="constrained", sharey=share_y, squeeze=False
            )
            for panel in axes:
                panel.spines[["top", "right"]].set_visible(False)
            fill(*axes)
            drawn.savefig(path, dpi=150, metadata={"Software": None})  # no version: files compare
            pyplot.close(drawn)

        FIGURES[name] = Figure(group, draw)
        return fill

    return register


def _line(panel: Any, curve: Curve, label: str, color: str, **style: Any) -> None:
    panel.plot(curve.x, curve.y, label=label, color=color, linewidth=1.5, **style)


def _label(panel: Any, x: str, y: str, title: str = "") -> None:
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    if title:
        panel.set_title(title, loc="left", fontsize=10)


def _legend(panel: Any, **place: Any) -> None:
    panel.legend(frameon=False, fontsize=9, **place)


def _signed(value: float, digits: int = 2) -> str:
    """With a true minus sign, and never a negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


@figure("blow-up", "A", panels=2)
def fill_blow_up(*panels: Any) -> None:
    """Largest gradient and curvature of smoothed losses over the smoothing radius."""
    colors = dict(zip(LOSSES, (BLUE, RED, GRAY), strict=True))
    names = (r"largest gradient $|\partial L_h|$, 1/length",
             r"largest curvature $|\partial^2 L_h|$, 1/length²")  # fmt: skip
    for panel, found, name in zip(panels, tabulate_blow_up(), names, strict=True):
        for loss, curve in found.items():
            style = HOLLOW | {"linestyle": "--"} if loss.startswith("uneven") else MARK
            _line(panel, curve, f"{loss}: slope {_signed(curve.order)}", colors[loss], **style)
        panel.set(xscale="log", yscale="log")
        panel.set_ylim(top=5 * max(curve.y.max() for curve in found.values()))
        _label(panel, "smoothing radius h, length", name)
        _legend(panel, loc="upper right")


@figure("kernels", "C", panels=3, share_y=True)
def fill_kernels(*panels: Any) -> None:
    """The tail kernel's gradient against that of the probe law."""
    for panel, dim in zip(panels, (2, 3, 4), strict=True):
        found = tabulate_gradients(dim)
        _line(panel, found["tail kernel"], "tail kernel", BLUE)
        _line(panel, found["probe law"], "probe law", RED, linestyle="--")
        panel.set(ylim=(0, 0.95))
        gap = found["tail kernel"].y[0] / found["probe law"].y[0] - 1
        _label(panel, "offset from the jump, δ", "", f"d = {dim}: {100 * gap:+.0f} % at the jump")
    panels[0].set_ylabel("gradient of a unit step, 1/δ")
    _legend(panels[2], loc="upper right")


@figure("remainders", "D", panels=2, height=4.6, share_y=True)
def fill_remainders(*panels: Any) -> None:
    """The softmax remainder over the probe radius, before and after averaging."""
    both = tabulate_remainders()
    titles = ("at each rotation: E‖e‖", "averaged over rotations: ‖E e‖")
    sizes = {"orthoplex": (BLUE, 7.5, 2.5), "simplex": (RED, 4, 1.2)}  # as they may coincide
    for panel, found, title in zip(panels, both, titles, strict=True):
        for name, curve in found.items():
            kind, loss = name.split(", ")
            color, size, width = sizes[kind]
            mark = {"smooth": "o", "Hessian jump": "s", "loss jump": "^"}[loss]
            orders = " and ".join(_signed(one[name].order) for one in both)
            panel.plot(
                curve.x, curve.y, color=color, marker=mark, markersize=size, linewidth=width,
                markerfacecolor="none" if loss == "Hessian jump" else color,
                label=f"{name}: {orders}",
            )  # fmt: skip
        panel.set(xscale="log", yscale="log")
        _label(panel, "probe radius $r_p$, units of ε", "", title)
    panels[0].set_ylabel("remainder e, step radii")
    panels[0].figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2,
        frameon=False, fontsize=9, title="exponents of E‖e‖ and of ‖E e‖", title_fontsize=9,
    )  # fmt: skip


@figure("occupancy", "E")
def fill_occupancy(panel: Any) -> None:
    """The share of a path near walls over the width of the tube."""
    found = tabulate_occupancy()
    descent, swing = found["descent"], found["swing"]
    label = f"swing across one wall to 1.1 δ: {_signed(swing.y[-1])}"
    _line(panel, swing, label, RED, **MARK)
    _line(panel, found["bound"], "bound of the lemma for the descent", GRAY, linestyle="--")
    label = f"descent across walls 2L apart: exponent {_signed(descent.order)}"
    _line(panel, descent, label, BLUE, **MARK)
    _line(panel, Curve(descent.x, descent.x), "δ/L", "0.2", linestyle=":")
    panel.set(xscale="log", yscale="log", ylim=(0.008, 1.5))
    panel.set_xticks(descent.x, [f"{x:g}" for x in descent.x])
    panel.set_xticks([], minor=True)
    panel.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    _label(panel, "half-width of the tube, δ/L", "share of the path inside the tube")
    _legend(panel, loc="center left", bbox_to_anchor=(0.0, 0.68))


@figure("drift", "G")
def fill_drift(panel: Any) -> None:
    """The mean radial step over the condition number."""
    found, exact = tabulate_drifts(), best_axis_overlap(4)
    _line(panel, found["far"], "probes at 10⁴ ‖z‖", RED, **MARK)
    _line(panel, found["near"], "probes at 10 ‖z‖", BLUE, **MARK)
    label = f"round bowl, $-m_4$ = {_signed(-exact, 4)}"
    panel.axhline(-exact, color=GRAY, linestyle="--", label=label)
    panel.set(xscale="log", ylim=(-0.85, 0.05))
    panel.axhline(0.0, color="0.8", linewidth=0.8)
    _label(panel, "condition number κ of the bowl (d = 4)", f"mean radial step, {STEP}")
    _legend(panel, loc="center right", bbox_to_anchor=(1.0, 0.35))


@figure("excursion", "G", panels=2)
def fill_excursion(growth: Any, amplitude: Any) -> None:
    """How far a run strays from a minimum, over steps and dimensions."""
    labels = {
        "free": ("no drift", BLUE),
        "flat": ("drift, flat radius", GREEN),
        "decayed": ("drift, radius $t^{-0.6}$", RED),
    }
    for name, curve in tabulate_excursions().items():
        label, color = labels[name]
        _line(growth, curve, f"{label}: slope {_signed(curve.order)}", color)
    growth.set(xscale="log", yscale="log", ylim=(5e-3, 2e3))
    _label(growth, "step t", f"RMS distance from the minimum, {STEP}", "excursion, d = 4")
    _legend(growth, loc="upper left")
    found = tabulate_amplitudes()
    _line(amplitude, found["closed form"], r"closed form $1/(2m_d)$", GRAY)
    _line(amplitude, found["simulated"], "simulated", GREEN, linestyle="none", **MARK)
    title = "stationary amplitude, flat radius"
    _label(amplitude, "dimension d of a particle", f"mean distance, {STEP}", title)
    amplitude.set(ylim=(0, 0.9), xticks=found["closed form"].x)
    _legend(amplitude, loc="lower right")


@figure("violation", "H")
def fill_violation(panel: Any) -> None:
    """The column violation over the penalty."""
    curve = tabulate_violation()
    _line(panel, curve, f"plan: slope {_signed(curve.order)} over this range", BLUE, **MARK)
    square = Curve(curve.x[-5:], curve.y[-1] * (curve.x[-5:] / curve.x[-1]) ** -2.0)
    label = f"slope −2 (last two points: {_signed(curve.last_order, 3)})"
    _line(panel, square, label, GRAY, linestyle="--")
    panel.set(xscale="log", yscale="log")
    _label(panel, "penalty λ, units of cost (ε = 0.1)", "column violation, KL in nats")
    _legend(panel, loc="lower left")


@figure("ghost", "H", panels=2)
def fill_ghost(steps: Any, means: Any) -> None:
    """The step of a constant row over the penalty, and what rotations leave of it."""
    found = tabulate_ghost_steps()
    for (name, curve), color in zip(found.items(), (BLUE, RED, GREEN, GRAY), strict=True):
        style = "--" if color == GRAY else "-"
        _line(steps, curve, f"{name}: {curve.y[-1]:.2g}", color, linestyle=style)
    steps.set(xscale="log", ylim=(-0.03, 1.3))
    _label(steps, "penalty λ, units of cost (ε = 0.1)", "step of a constant row, step radii")
    _legend(steps, loc="upper left", title="step at the largest λ", title_fontsize=9)
    averaged = tabulate_ghost_means()
    uniform, biased = averaged["uniform"], averaged["biased"]
    _line(means, biased, "rotations of density 1 + ⅔ cos ϑ", RED, **MARK)
    means.axhline(1 / 3, color=GRAY, linestyle=":", label="first moment, ⅓")
    _line(means, uniform, f"uniform rotations: slope {_signed(uniform.order)}", BLUE, **MARK)
    _line(means, Curve(uniform.x, uniform.x**-0.5), "1/√n", GRAY, linestyle="--")
    means.set(xscale="log", yscale="log", ylim=(1e-3, 0.8))
    _label(means, "number n of rotations", "norm of the mean step, step lengths")
    _legend(means, loc="lower left")


@figure("flat-pairs", "I")
def fill_flat_pairs(panel: Any) -> None:
    """The share of flat antithetic pairs over the probe radius."""
    found, laws = tabulate_flat_pairs()
    for name, label, color in (
        ("anywhere", "anywhere in a bin", BLUE),
        ("bin centers", "at bin centers", RED),
    ):
        panel.plot(laws[name].x, laws[name].y, color=color, linewidth=1.5)
        _line(panel, found[name], label, color, linestyle="none", **MARK)
    where = 1 / (2 * math.sqrt(2 / math.pi) * COORDINATES)
    panel.axvline(where, color=GRAY, linestyle=":", label=r"$\Delta_q/(1.6\,d)$")
    panel.set(xscale="log", ylim=(-0.03, 1.03))
    _label(panel, "probe radius μ, bins $\\Delta_q$ (d = 1,538)", "share of flat pairs")
    _legend(panel, loc="center", title="weights (dots) and law (lines)", title_fontsize=9)
