"""Validation accuracy of the digits settings on the seeds they were chosen on (10, 11, 12).

    python -m benchmarks.runs.digits_tuning            run what is not recorded yet
    python -m benchmarks.runs.digits_tuning --table    print the table of docs/lab/tuning.md

The test set is never opened here. One JSON line per run goes to
benchmarks/results/digits-tuning.jsonl: validation after the last step, and the best of all.
"""

import json
import sys
from pathlib import Path

from hardstep import nn as hard
from hardstep import presets, tasks
from hardstep._files import provenance
from hardstep._pages import markdown_table
from hardstep.data import Batches
from hardstep.optim import PolyStep, StepReport
from hardstep.optim.settings import describe
from hardstep.training import Callback, Run, Validation, fit

RECORDS = Path(__file__).parents[1] / "results" / "digits-tuning.jsonl"
SEEDS = (10, 11, 12)
CONFIGURATIONS = (  # task, step radius, rank, steps
    ("mlp", 0.25, 8, 120),
    ("mlp", 0.25, 8, 40),
    ("int8", 0.25, 8, 120),
    ("argmax", 0.25, 8, 120),
    ("staircase", 0.25, 8, 120),
    ("staircase", 0.3, 8, 200),
    ("moe", 0.25, 4, 100),
    ("snn", 0.2, 4, 200),
    ("snn", 0.2, 4, 67),
    ("snn", 0.5, 4, 200),
    ("snn", 1.0, 4, 67),
)


def records() -> list[dict]:
    """What has been recorded."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def key(record: dict) -> tuple:
    """What identifies a run."""
    return tuple(record[name] for name in ("task", "step_radius", "rank", "steps", "seed"))


def run(name: str, step_radius: float, rank: int, steps: int, seed: int) -> None:
    """Train without touching the test set, and append what validation said."""
    task = tasks.find(name)
    data = task.data(seed)
    model = hard.build(task.model, seed)
    settings = presets.general(steps, rank=rank, step_radius=step_radius)
    optimizer = PolyStep(model, settings, seed=seed)
    dead = []
    valid = Batches(data.valid, task.batch_size, seed, shuffle=False)
    outcome = fit(
        model,
        Batches(data.train, task.batch_size, seed),
        Validation(valid, task.metric, every=max(1, steps // 40)),
        optimizer=optimizer,
        steps=steps,
        callbacks=(Watch(dead),),
    )
    record = {
        "task": name,
        "step_radius": step_radius,
        "rank": rank,
        "steps": steps,
        "seed": seed,
        "last_valid": outcome.history[-1].value,
        "best_valid": outcome.best.value,
        "largest_dead_share": max(dead),
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "settings": describe(settings),
        **provenance(),
    }
    record["command"] = "python -m benchmarks.runs.digits_tuning"
    with RECORDS.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    print(name, step_radius, rank, steps, seed, f"{record['last_valid']:.3f}", flush=True)


class Watch(Callback):
    """Keeps the dead share of every step."""

    def __init__(self, shares: list[float]) -> None:
        self.shares = shares

    def on_step(self, run: Run, report: StepReport) -> None:
        """Note it."""
        self.shares.append(report.dead_share)


def table() -> str:
    """Markdown: last-step validation per seed, and the largest dead share of any step."""
    lines = []
    for name, step_radius, rank, steps in CONFIGURATIONS:
        found = [r for r in records() if key(r)[:4] == (name, step_radius, rank, steps)]
        found.sort(key=lambda r: r["seed"])
        each = " / ".join(f"{100 * r['last_valid']:.1f}" for r in found)
        dead = max((r["largest_dead_share"] for r in found), default=0.0)
        lines.append([name, f"{step_radius}, {rank}", str(steps), each, f"{dead:.2f}"])
    head = ["task", "radius, rank", "steps", "seeds 10 / 11 / 12", "largest dead share"]
    return markdown_table(head, lines)


def main() -> None:
    """Run, or print."""
    if "--table" not in sys.argv:
        done = {key(record) for record in records()}
        for configuration in CONFIGURATIONS:
            for seed in SEEDS:
                if (*configuration, seed) not in done:
                    run(*configuration, seed)
    print(table())


if __name__ == "__main__":
    main()
