"""Why a run does not move, and what would: probes over a sweep of radii, then trial steps.

    found = diagnose(model, [(x1, y1), (x2, y2)], loss_fn, settings)
    print(*found.reasons, sep="; ")
    opt = PolyStep(model, found.recommended)

A probe that changes nothing tells nothing. At every radius a sample of particles is probed from
the current weights, and it is counted how many pairs of probes return the same loss bit for bit
(flat pairs), how many rows are constant (dead), how many probes differ from the loss here (have
crossed a wall), and how large the differences are. Where rows are alive, a few steps are tried
on a copy, and the radius whose steps lower the loss on other examples most is recommended.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardstep._text import to_caption
from hardstep.errors import ConfigError
from hardstep.evaluation import LossFunction, call_model
from hardstep.evaluation.sandbox import keep
from hardstep.optim.polystep import PolyStep
from hardstep.optim.selection import Only, choose_names
from hardstep.optim.settings import Settings
from hardstep.schedules import Length, length_at, temperature_at

SWEEP = tuple(10.0 ** (k / 2) for k in range(-8, 7))  # probe radii, 1e-4 to 1e3
ROWS = 48  # particles sampled per radius
TRIAL_STEPS = 6
STEP_SHARE = 0.125  # of the probe radius: what `presets.general` uses
COLD = 0.02  # temperature as a share of the typical difference of losses
DEAD, FLAT = 0.5, 0.5  # shares above which a radius is called too small
USUAL = 1.0  # a probe radius that units which fire feel: about the length of their weights
WAKE = (
    "if units of the network never fire, hardstep.nn.wake(model, inputs) scales its layers until "
    "they do"
)


class Probed(NamedTuple):
    """What probes at one radius show."""

    probe_radius: float
    flat_pairs: float  # share of pairs of probes of a row with the same loss
    dead_rows: float  # share of rows whose probes all return the same
    crossed: float  # share of probes whose loss differs from the loss here
    spread: float  # median over rows of the largest difference, of rows that are not dead
    saturated: float  # share of rows whose difference exceeds the present temperature
    trial_loss: float  # on other examples after a few steps; NaN if none were tried


@dataclass(frozen=True)
class Diagnosis:
    """The sweep, the present setting, and what is recommended."""

    here: Probed  # at the radius of the settings
    sweep: tuple[Probed, ...]
    loss: float  # on other examples, before any step
    temperature: float
    recommended: Settings | None  # constant over a run; nothing if no trial lowered the loss
    reasons: tuple[str, ...]  # sentences

    def draw(self, path: Path, title: str) -> None:
        """Shares of flat pairs, dead rows and crossing probes over the probe radius, as a figure.

        Needs matplotlib.
        """
        from matplotlib.figure import Figure

        radii = [probed.probe_radius for probed in self.sweep]
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for name, label, color in (
            ("flat_pairs", "pairs of probes with the same loss", "#2a6f97"),
            ("dead_rows", "constant rows", "#c1666b"),
            ("crossed", "probes whose loss differs from the loss here", "#6a994e"),
        ):
            shares = [100 * getattr(probed, name) for probed in self.sweep]
            axes.plot(radii, shares, marker="o", markersize=4, label=label, color=color)
        present = self.here.probe_radius
        axes.axvline(present, color="0.4", linestyle=":", label="present probe radius")
        axes.set(xscale="log", xlabel="probe radius", ylabel="share, %")
        axes.set_title(to_caption(title), loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(path, dpi=150)


def diagnose(
    model: nn.Module,
    batches: Sequence[tuple[Any, Any]],
    loss_fn: LossFunction,
    settings: Settings,
    seed: int = 0,
    watch: Callable[[Probed], None] | None = None,
    only: Only | None = None,
) -> Diagnosis:
    """Probe a model as it is; nothing of it is changed.

    Args:
        model: The model, at the weights where it is stuck.
        batches: At least two pairs (inputs, target); the last one only judges trial steps.
        loss_fn: Of (output, target).
        settings: Of the run; temperature and radii are taken at its first step.
        seed: Of the sample and the trials.
        watch: Called with every radius of the sweep as it is done.
        only: Which tensors are searched, as for `PolyStep`.

    Raises:
        ConfigError: There are too few batches, or no probe changes the loss.
    """
    if len(batches) < 2:
        raise ConfigError(f"diagnose needs at least two batches, got {len(batches)}")
    temperature = temperature_at(settings.temperature, 0)
    present = length_at("probe_radius", settings.probe_radius, 0, temperature)
    plain = settings.changed(rules=(), temperature=temperature)
    names = None if only is None else choose_names(model, only)  # trials search copies
    trial = _Trial(model, tuple(batches), loss_fn, plain, seed, names)
    here = trial.probe(present)
    sweep = []
    for radius in SWEEP:
        sweep.append(trial.take_steps(trial.probe(radius)))
        if watch is not None:
            watch(sweep[-1])
    before = trial.held_out(model)
    best = min(sweep, key=lambda p: math.inf if math.isnan(p.trial_loss) else p.trial_loss)
    if math.isnan(best.trial_loss):
        raise ConfigError(
            f"diagnose: no probe between {SWEEP[0]:g} and {SWEEP[-1]:g} changes the loss; check "
            f"that the loss depends on the parameters searched; {WAKE}"
        )
    step = length_at("step_radius", settings.step_radius, 0, temperature)
    reasons = _reasons(here, best, before, temperature, step)
    if all(probed.dead_rows > DEAD for probed in sweep if probed.probe_radius <= USUAL):
        reasons.insert(-1, f"most rows are constant at every probe radius up to {USUAL:g}; {WAKE}")
    recommended = settings.changed(**_trial_settings(best)) if best.trial_loss < before else None
    return Diagnosis(here, tuple(sweep), before, temperature, recommended, tuple(reasons))


def _trial_settings(probed: Probed) -> dict[str, Any]:
    """The settings of trial steps at a radius."""
    return {
        "temperature": COLD * probed.spread,
        "probe_radius": Length(probed.probe_radius),
        "step_radius": Length(STEP_SHARE * probed.probe_radius),
    }


@dataclass(frozen=True)
class _Trial:
    """Probes and steps on copies."""

    model: nn.Module
    batches: tuple[tuple[Any, Any], ...]
    loss_fn: LossFunction
    settings: Settings
    seed: int
    only: list[str] | None

    def probe(self, radius: float) -> Probed:
        """Look at one radius."""
        optimizer = self._search(self.model, probe_radius=Length(radius))
        proposal = optimizer.propose()
        num = len(proposal.rows)
        chosen = torch.linspace(0, num - 1, min(ROWS, num)).round().long()
        proposal = proposal._replace(rows=proposal.rows[chosen])
        batch = self.batches[0]
        losses = optimizer.evaluate(proposal, *batch, self.loss_fn)[proposal.rows].flatten(1)
        return _count(radius, losses, self._loss(self.model, batch), proposal.temperature)

    def take_steps(self, probed: Probed) -> Probed:
        """Try a few steps, if rows are alive."""
        if probed.dead_rows > DEAD or not probed.spread > 0:
            return probed
        model = copy.deepcopy(self.model)
        optimizer = self._search(model, **_trial_settings(probed))
        for step in range(TRIAL_STEPS):
            batch = self.batches[step % (len(self.batches) - 1)]
            # What `step` does, without its warnings: rows may die at a radius that is no good.
            proposal = optimizer.propose()
            optimizer.advance(proposal, optimizer.evaluate(proposal, *batch, self.loss_fn))
        loss = self.held_out(model)
        return probed._replace(trial_loss=loss if math.isfinite(loss) else math.nan)

    def _search(self, model: nn.Module, **changes: Any) -> PolyStep:
        return PolyStep(model, self.settings.changed(**changes), only=self.only, seed=self.seed)

    def held_out(self, model: nn.Module) -> float:
        """The loss on the examples no step sees."""
        return self._loss(model, self.batches[-1])

    def _loss(self, model: nn.Module, batch: tuple[Any, Any]) -> float:
        inputs, target = batch
        with torch.no_grad(), keep([*model.parameters(), *model.buffers()]):
            return float(self.loss_fn(call_model(model, inputs), target))


def _count(radius: float, losses: Tensor, here: float, temperature: float) -> Probed:
    """Shares from the losses of the sampled particles, (particles, probes)."""
    pairs = losses[:, :, None] == losses[:, None, :]
    num = losses.shape[1]
    flat = (pairs.double().sum((1, 2)) - num) / (num * (num - 1))
    spread = losses.amax(1) - losses.amin(1)
    alive = spread > 0
    # A float32 evaluator and a plain pass may differ in the last digits; a jump does not.
    differs = (losses - here).abs() > 1e-6 * max(1.0, abs(here))
    return Probed(
        probe_radius=radius,
        flat_pairs=float(flat.mean()),
        dead_rows=float((~alive).double().mean()),
        crossed=float(differs.double().mean()),
        spread=float(spread[alive].median()) if bool(alive.any()) else 0.0,
        saturated=float((spread > temperature).double().mean()),
        trial_loss=math.nan,
    )


def _reasons(
    here: Probed, best: Probed, before: float, temperature: float, step: float
) -> list[str]:
    """What is wrong with the present setting, if anything, and why the other one is better."""
    texts = []
    if here.dead_rows > DEAD:
        texts.append(
            f"dead rows: at probe radius {here.probe_radius:.3g}, all probes of "
            f"{here.dead_rows:.0%} of the particles return the same loss, so these particles do "
            "not move; use longer probes"
        )
    elif here.flat_pairs > FLAT:
        texts.append(
            f"{here.flat_pairs:.0%} of the pairs of probes return the same loss at probe radius "
            f"{here.probe_radius:.3g}; longer probes would tell directions apart"
        )
    if here.probe_radius > 30 * best.probe_radius:
        texts.append(
            f"probes of {here.probe_radius:.3g} are much longer than those of the best trial, "
            f"{best.probe_radius:.3g}; use shorter probes"
        )
    if here.spread and temperature > 5 * here.spread:
        texts.append(
            f"the temperature {temperature:.3g} is far above the typical difference of losses, "
            f"{here.spread:.3g}: every direction gets nearly the same weight, and steps are "
            "shorter than the step radius"
        )
    if step > here.probe_radius:
        texts.append(
            f"steps of {step:.3g} go farther than the probes of {here.probe_radius:.3g} have looked"
        )
    trial = (
        f"the best trial, {TRIAL_STEPS} steps at probe radius {best.probe_radius:.3g}, step radius "
        f"{STEP_SHARE * best.probe_radius:.3g} and temperature {COLD * best.spread:.3g},"
    )
    losses = f"the loss on other examples from {before:.3g} to {best.trial_loss:.3g}"
    if best.trial_loss < before:
        return [*texts, f"{trial} lowered {losses}"]
    return [
        *texts,
        f"no radius helps: {trial} changed {losses}; the model may be trained already, or need "
        "larger batches or another subspace",
    ]
