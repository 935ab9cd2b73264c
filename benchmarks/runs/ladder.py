"""The theory ladder: four hypotheses switched on from the tuned run, and off from theory mode.

    python -m benchmarks.runs.ladder                 digits, three seeds, what is not recorded yet
    python -m benchmarks.runs.ladder --data mnist    MNIST, seed 42 (40 minutes, HARDSTEP_DATA)
    python -m benchmarks.runs.ladder --table         print the tables

The spiking network with the paper's settings (`presets.snn`) in the row-wise subspace is the tuned
run; in the paper's own subspace the ladder is in benchmarks/suites/paper-method.toml. Each run
appends one JSON line to benchmarks/results/ladder.jsonl; the test set is read once, by the weights
that validation selected.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

from hardstep import RowWise, Simplex, presets, tasks
from hardstep._files import provenance
from hardstep._pages import markdown_table
from hardstep.bench.axes import Budget
from hardstep.bench.runs import Job, run_job
from hardstep.geometry import Biased, Haar, Jitter, Mollifier, Orthoplex
from hardstep.optim import PolyStep, Settings
from hardstep.schedules import PowerDecay, TimesTemperature
from hardstep.training import Callback, Run

RECORDS = Path(__file__).parents[1] / "results" / "ladder.jsonl"
SEEDS = {"digits": (0, 1, 2), "mnist": (42,)}
STEPS = {"digits": 500, "mnist": 1060}  # ten epochs of MNIST; the paper took thirty
SMOOTH = Jitter(probe=Mollifier(0.05), step=Mollifier(0.05))
CONDITIONS = {  # what the hypothesis sets, and what the tuned run has instead
    "smooth radius jitter (iv)": ({"jitter": SMOOTH}, {"jitter": Jitter()}),
    "orthoplex frame (i)": ({"polytope": Orthoplex(8)}, {"polytope": Simplex(8)}),
    "independent rotations (ii)": ({"rotation": Haar()}, {"rotation": Biased()}),
    "decaying step radius (v)": (
        {"step_radius": TimesTemperature(PowerDecay(2.0, 0.6))},
        {"step_radius": TimesTemperature(2.0)},
    ),
}


def rungs(steps: int) -> dict[str, Settings]:
    """Every configuration by name."""
    tuned = presets.snn(steps).changed(subspace=RowWise(4))
    theory = tuned.changed(
        rules=(), **{k: v for on, _ in CONDITIONS.values() for k, v in on.items()}
    )
    found = {"tuned": tuned}
    found |= {f"tuned + {name}": tuned.changed(**on) for name, (on, _) in CONDITIONS.items()}
    found["theory mode"] = theory
    found |= {
        f"theory mode − {name}": theory.changed(**off) for name, (_, off) in CONDITIONS.items()
    }
    return found


class KeepOptimizer(Callback):
    """Keeps the run's optimizer."""

    optimizer: PolyStep

    def on_start(self, run: Run) -> None:
        """Note it."""
        self.optimizer = run.optimizer


def run(data: str, seed: int, name: str) -> dict:
    """One run."""
    task = tasks.find("snn", data)
    task = replace(task, steps=STEPS[data], settings=lambda steps: rungs(steps)[name])
    kept = KeepOptimizer()
    job = Job(task.name, task.data_name, "polystep", seed, Budget("steps", task.steps))
    record = run_job(job, task=task, watching=[kept])
    coverage = kept.optimizer.coverage()
    seen = coverage.statistics
    return {
        "data": data,
        "seed": seed,
        "configuration": name,
        "test_accuracy": record["test"],
        "valid_accuracy": record["valid"],
        "steps": record["steps"],
        "evaluations": record["evaluations"],
        "seconds": record["seconds"],
        "conditions": {c.number: c.status for c in coverage.conditions},
        "saturation": seen.saturation,
        "spread": seen.spread,
        **provenance(),
    }


def records() -> list[dict]:
    """What has been recorded."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def table(data: str) -> str:
    """Markdown: mean over seeds, and the difference to the head of the block."""
    lines = []
    head = 0.0
    for name in rungs(1):
        found = [r for r in records() if r["data"] == data and r["configuration"] == name]
        if not found:
            continue
        scores = [100 * r["test_accuracy"] for r in sorted(found, key=lambda r: r["seed"])]
        mean = statistics.mean(scores)
        first = name in ("tuned", "theory mode")
        head = mean if first else head
        each = ", ".join(f"{score:.1f}" for score in scores)
        worst = max(found, key=lambda r: r["spread"])
        lines.append([
            name, f"{mean:.1f} ({each})", "" if first else f"{mean - head:+.1f}",
            f"{worst['saturation']:.2g} ({worst['spread']:.2f})",
        ])  # fmt: skip
    columns = ["configuration", "test accuracy, % (each seed)", "Δ", "σ̄ (max Δ/ε)"]
    return markdown_table(columns, lines)


def main() -> None:
    """Run, or print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=sorted(SEEDS), default="digits")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        done = {(r["data"], r["seed"], r["configuration"]) for r in records()}
        for seed in SEEDS[options.data]:
            for name in rungs(1):
                if (options.data, seed, name) not in done:
                    result = run(options.data, seed, name)
                    result["command"] = f"python -m benchmarks.runs.ladder --data {options.data}"
                    with RECORDS.open("a") as stream:
                        stream.write(json.dumps(result) + "\n")
    for data in sorted(SEEDS):
        print(f"{data}\n\n{table(data)}\n")


if __name__ == "__main__":
    main()
