"""Validation accuracy of the spiking network on MNIST for a few settings, 300 steps, seed 7.

    HARDSTEP_DATA=... python -m benchmarks.runs.mnist_tuning            run what is not recorded yet
    HARDSTEP_DATA=... python -m benchmarks.runs.mnist_tuning --table    print the table

What `presets.wide` was chosen by. The test set is never opened here. One JSON line per run goes
to benchmarks/results/mnist-tuning.jsonl.
"""

import json
import sys
import time
from pathlib import Path

from hardstep import nn as hard
from hardstep import presets, tasks
from hardstep._files import provenance
from hardstep._pages import markdown_table
from hardstep.data import Batches
from hardstep.optim import PolyStep
from hardstep.optim.settings import describe
from hardstep.training import Validation, fit

RECORDS = Path(__file__).parents[1] / "results" / "mnist-tuning.jsonl"
SEED, STEPS = 7, 300
CONFIGURATIONS = (  # step radius, probe radius, redraw
    (0.25, 2.0, None),
    (0.1, 2.0, None),
    (0.1, 2.0, 10),
    (0.1, 1.0, 10),
    (0.1, 0.5, 10),
    (0.07, 1.0, 10),
    (0.07, 1.0, None),
    (0.07, 1.0, 1),
)


def records() -> list[dict]:
    """What has been recorded."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def key(record: dict) -> tuple:
    """What identifies a run."""
    return tuple(record[name] for name in ("step_radius", "probe_radius", "redraw"))


def run(step_radius: float, probe_radius: float, redraw: int | None) -> None:
    """Train without touching the test set, and append what validation said."""
    task = tasks.find("snn", "mnist")
    data = task.data(SEED)
    model = hard.build(task.model, SEED)
    settings = presets.general(STEPS, 4, step_radius, probe_radius, redraw)
    started = time.process_time()
    outcome = fit(
        model,
        Batches(data.train, task.batch_size, SEED),
        Validation(Batches(data.valid, 1000, SEED, shuffle=False), task.metric, every=60),
        optimizer=PolyStep(model, settings, seed=SEED),
        steps=STEPS,
    )
    record = {
        "task": "snn",
        "data": "mnist",
        "seed": SEED,
        "steps": STEPS,
        "step_radius": step_radius,
        "probe_radius": probe_radius,
        "redraw": redraw,
        "valid": [score.value for score in outcome.history],
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "cpu_seconds": time.process_time() - started,
        "settings": describe(settings),
        **provenance(),
        "command": "python -m benchmarks.runs.mnist_tuning",
    }
    with RECORDS.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    print(*key(record), f"{record['valid'][-1]:.3f}", flush=True)


def table() -> str:
    """Markdown: validation after 60, 120, … 300 steps."""
    lines = []
    for record in sorted(records(), key=lambda r: r["valid"][-1]):
        each = " / ".join(f"{100 * value:.1f}" for value in record["valid"])
        step_radius, probe_radius, redraw = key(record)
        every = f"every {redraw}" if redraw else "never"
        lines.append([str(step_radius), str(probe_radius), every, each])
    head = ["step radius", "probe radius", "redraw", "validation after 60 / 120 / 180 / 240 / 300"]
    return markdown_table(head, lines)


def main() -> None:
    """Run, or print."""
    if "--table" not in sys.argv:
        done = {key(record) for record in records()}
        for configuration in CONFIGURATIONS:
            if configuration not in done:
                run(*configuration)
    print(table())


if __name__ == "__main__":
    main()
