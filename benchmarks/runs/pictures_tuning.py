"""Validation accuracy of `csnn` and `bcnn` on MNIST for a few settings, seed 7.

    HARDSTEP_DATA=... python -m benchmarks.runs.pictures_tuning            run what is missing
    HARDSTEP_DATA=... python -m benchmarks.runs.pictures_tuning --table    print the tables

What the settings of the two tasks were chosen by. The test set is never opened here. One JSON line
per run goes to benchmarks/results/pictures-tuning.jsonl.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardstep import nn as hard
from hardstep import presets, tasks
from hardstep._files import provenance
from hardstep._pages import markdown_table
from hardstep.data import Batches
from hardstep.optim import PolyStep
from hardstep.optim.settings import Settings, describe
from hardstep.solvers import Blockwise, RowSoftmax, Standardized
from hardstep.training import Validation, fit

RECORDS = Path(__file__).parents[1] / "results" / "pictures-tuning.jsonl"
SEED, POINTS = 7, 4
POOLED = "; with pooling in place of strides, sums not scaled"  # as `bcnn` was at first


def even(steps: int, temperature: float = 1.0, **options: Any) -> Settings:
    """`presets.warm` with the differences of all losses in units of their spread."""
    settings = presets.warm(steps, temperature=temperature, decay=0.0, **options)
    return settings.changed(solver=Standardized(RowSoftmax()))


def layers(steps: int, **options: Any) -> Settings:
    """`even`, every parameter tensor by itself."""
    return even(steps, **options).changed(solver=Blockwise(Standardized(RowSoftmax())))


PRESETS = {
    "general": presets.general,
    "wide": presets.wide,
    "warm": presets.warm,
    "even": even,
    "layers": layers,
}


def configure(task: str, steps: int, batch: int, preset: str, **options: Any) -> dict[str, Any]:
    """A run to make; options are the preset's."""
    return {"task": task, "steps": steps, "batch": batch, "preset": preset, "options": options}


CONFIGURATIONS = (
    configure("bcnn", 150, 128, "warm", rank=2, step_radius=0.3, probe_radius=1.0, decay=0.0),
    configure("csnn", 60, 64, "general", rank=1, step_radius=0.03, probe_radius=0.5, redraw=10),
    configure("csnn", 60, 64, "general", rank=1, step_radius=0.07, probe_radius=1.0, redraw=10),
    configure(
        "bcnn",
        150,
        128,
        "warm",
        rank=2,
        step_radius=0.3,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure("csnn", 60, 64, "warm", rank=1, step_radius=0.1, probe_radius=0.5, decay=0.0),
    configure("csnn", 60, 64, "general", rank=1, step_radius=0.12, probe_radius=2.0, redraw=10),
    configure("csnn", 60, 64, "general", rank=1, step_radius=0.2, probe_radius=2.0, redraw=10),
    configure("csnn", 60, 64, "general", rank=2, step_radius=0.12, probe_radius=2.0, redraw=10),
    configure(
        "bcnn",
        1000,
        128,
        "warm",
        rank=2,
        step_radius=0.3,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure(
        "bcnn",
        150,
        128,
        "warm",
        rank=2,
        step_radius=0.3,
        probe_radius=1.0,
        temperature=0.01,
        decay=0.0,
    ),
    configure(
        "bcnn",
        150,
        128,
        "warm",
        rank=2,
        step_radius=0.3,
        probe_radius=2.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure("csnn", 200, 64, "general", rank=2, step_radius=0.12, probe_radius=2.0, redraw=10),
    configure(
        "bcnn",
        150,
        128,
        "warm",
        rank=2,
        step_radius=1.0,
        probe_radius=2.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure("bcnn", 150, 128, "general", rank=2, step_radius=0.12, probe_radius=2.0, redraw=10),
    configure(
        "bcnn",
        150,
        128,
        "warm",
        rank=4,
        step_radius=0.3,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
    *(
        configure(
            "bcnn",
            500,
            128,
            "warm",
            rank=2,
            step_radius=step,
            probe_radius=1.0,
            temperature=heat,
            decay=0.0,
        )
        for step, heat in ((0.1, 0.02), (0.1, 0.005), (0.3, 0.06))
    ),
    *(
        configure("bcnn", 250, 128, "even", rank=2, step_radius=step, probe_radius=1.0)
        for step in (0.05, 0.02)
    ),
    configure("bcnn", 250, 128, "layers", rank=2, step_radius=0.03, probe_radius=1.0),
    configure(
        "bcnn",
        500,
        128,
        "warm",
        rank=1,
        step_radius=0.1,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure(
        "bcnn",
        500,
        64,
        "warm",
        rank=2,
        step_radius=0.1,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
    configure("bcnn", 250, 128, "layers", rank=2, step_radius=0.06, probe_radius=1.0),
    configure("bcnn", 1000, 128, "layers", rank=2, step_radius=0.06, probe_radius=1.0),
    configure(
        "bcnn",
        250,
        128,
        "warm",
        rank=4,
        step_radius=0.1,
        probe_radius=1.0,
        temperature=0.02,
        decay=0.0,
    ),
)


def records() -> list[dict[str, Any]]:
    """What has been recorded."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def run(configuration: dict[str, Any]) -> None:
    """Train without touching the test set, and append what validation said."""
    task = replace(tasks.find(configuration["task"], "mnist"), batch_size=configuration["batch"])
    data, model, steps = task.data(SEED), hard.build(task.model, SEED), configuration["steps"]
    settings = PRESETS[configuration["preset"]](steps, **configuration["options"])
    started = time.process_time()
    outcome = fit(
        model,
        Batches(data.train, task.batch_size, SEED),
        Validation(
            Batches(data.valid, 1000, SEED, shuffle=False), task.metric, every=steps // POINTS
        ),
        optimizer=PolyStep(model, settings, seed=SEED),
        steps=steps,
    )
    record = {
        "configuration": configuration,
        "seed": SEED,
        "model": str(model),
        "valid": [score.value for score in outcome.history],
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "cpu_seconds": time.process_time() - started,
        "settings": describe(settings),
        **provenance(),
        "command": "python -m benchmarks.runs.pictures_tuning",
    }
    with RECORDS.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    print(json.dumps(configuration), record["valid"], f"{record['cpu_seconds']:.0f} s", flush=True)


def table(task: str) -> str:
    """Markdown: validation after each quarter of the run."""
    lines = []
    for record in records():
        made = record["configuration"]
        if made["task"] == task:
            settings = ", ".join(f"{name} {value}" for name, value in made["options"].items())
            each = " / ".join(f"{100 * value:.1f}" for value in record["valid"])
            pooled = made["task"] == "bcnn" and "MaxPool" in record["model"]
            words = f"{made['preset']}: {settings}{POOLED if pooled else ''}"
            numbers = [str(made["batch"]), str(made["steps"]), f"{record['cpu_seconds']:.0f}"]
            lines.append([words, *numbers, each])
    head = ["settings", "batch", "steps", "CPU seconds", "validation after each quarter, %"]
    return markdown_table(head, lines)


def main() -> None:
    """Run, or print."""
    if "--table" not in sys.argv:
        done = [record["configuration"] for record in records()]
        for configuration in CONFIGURATIONS:
            if configuration not in done:
                run(configuration)
    for task in ("csnn", "bcnn"):
        print(f"{task}\n\n{table(task)}\n")


if __name__ == "__main__":
    main()
