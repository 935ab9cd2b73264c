"""`hardstep diagnose`: for runs that do not move."""

import json
import math
from itertools import islice
from typing import Any

from hardstep import nn as hard
from hardstep import tasks
from hardstep.cli.evaluate import find_checkpoint, restore
from hardstep.cli.files import check_picture, with_ending
from hardstep.cli.options import DiagnoseOptions
from hardstep.cli.output import print
from hardstep.data import Batches
from hardstep.optim import Settings
from hardstep.optim.diagnosis import Diagnosis, Probed, diagnose
from hardstep.optim.flat_pairs import count_flat_pairs
from hardstep.schedules import Length, temperature_at
from hardstep.tasks.dry_run import try_model
from hardstep.training import checkpoints

NUM_BATCHES = 4  # three to step on, one to judge by
HEAD = (
    f"{'probe radius':>14}{'flat pairs':>12}{'dead rows':>11}{'crossed':>9}"
    f"{'difference':>12}{'saturated':>11}{'trial loss':>12}"
)


def run_diagnose(options: DiagnoseOptions) -> int:
    """Probe the task's model, print the table and the recommendation."""
    task = tasks.find(options.task, options.data)
    if options.picture is not None:
        check_picture(options.picture, "--picture")
    model = hard.build(task.model, options.seed)
    if options.checkpoint is not None:
        path = find_checkpoint(options.checkpoint)
        restore(model, checkpoints.load(path)["model"], path, task)
    dataset = task.data(options.seed)
    try_model(task, dataset, model)
    train = dataset.train
    size = min(task.batch_size, max(1, len(train) // 2))  # of small data two batches at least
    examples = Batches(train, size, options.seed)
    batches = list(islice(iter(examples), NUM_BATCHES))
    settings = _choose_settings(task.settings(task.steps), options)
    if not options.json:
        print(HEAD)
    watch = None if options.json else _show
    found = diagnose(model, batches, task.loss_fn, settings, options.seed, watch)
    if options.picture is not None:
        picture = with_ending(options.picture)
        picture.parent.mkdir(parents=True, exist_ok=True)
        found.draw(picture, task.title)
    flat = (
        count_flat_pairs(model, batches, task.loss_fn, seed=options.seed) if options.pairs else {}
    )
    if options.json:
        mirrored = [{"radius": radius, "flat": share} for radius, share in flat.items()]
        print(json.dumps(_to_dict(found) | ({"mirrored_pairs": mirrored} if flat else {})))
        return 0
    print(conclusion(found))
    if flat:
        shares = ", ".join(f"{share:.1%} at {radius:g}" for radius, share in flat.items())
        print(f"mirrored probes of all weights with the same loss: {shares}")
    return 0


def _choose_settings(settings: Settings, options: DiagnoseOptions) -> Settings:
    changes: dict[str, Any] = {}
    if options.temperature is not None:
        changes["temperature"] = options.temperature
    for name in ("step_radius", "probe_radius"):
        value = getattr(options, name)
        if value is not None:
            changes[name] = Length(value)
    return settings.changed(**changes)


def _show(probed: Probed) -> None:
    print(_format(probed), flush=True)  # a sweep takes a while on large models


def conclusion(found: Diagnosis) -> str:
    """What the table shows, in words, and what to do about it."""
    lines = ["at the present setting:", _format(found.here), ""]
    lines += [*(f"- {reason}" for reason in found.reasons), ""]
    if found.recommended is None:
        return "\n".join([*lines, "recommended: no other radii or temperature"])
    values = _values(found.recommended)
    named = (f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())
    return "\n".join([*lines, f"recommended: {', '.join(named)}"])


def _format(probed: Probed) -> str:
    trial = "–" if math.isnan(probed.trial_loss) else f"{probed.trial_loss:.3f}"
    return (
        f"{probed.probe_radius:>14.3g}{probed.flat_pairs:>12.1%}{probed.dead_rows:>11.1%}"
        f"{probed.crossed:>9.1%}{probed.spread:>12.3g}{probed.saturated:>11.1%}{trial:>12}"
    )


def _values(settings: Settings) -> dict[str, float]:
    """What is recommended, as numbers."""
    return {
        "temperature": temperature_at(settings.temperature, 0),
        "step_radius": settings.step_radius.at(0, 1.0),
        "probe_radius": settings.probe_radius.at(0, 1.0),
    }


def _to_dict(found: Diagnosis) -> dict[str, Any]:
    def plain(probed: Probed) -> dict[str, float | None]:
        return {k: None if math.isnan(v) else v for k, v in probed._asdict().items()}

    return {
        "here": plain(found.here),
        "sweep": [plain(probed) for probed in found.sweep],
        "loss": found.loss,
        "recommended": None if found.recommended is None else _values(found.recommended),
        "reasons": list(found.reasons),
    }
