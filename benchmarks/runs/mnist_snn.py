"""Record `hardstep train snn --data mnist` at its default settings.

    python -m benchmarks.runs.mnist_snn              the paper's five seeds
    python -m benchmarks.runs.mnist_snn 42 123       these seeds
    python -m benchmarks.runs.mnist_snn --table      print what is recorded

MNIST is found as the command finds it (README). Each run appends one JSON line to
benchmarks/results/mnist-snn.jsonl; a seed recorded with the present settings is not run again,
and a run that was interrupted goes on from its checkpoint in runs/. Test accuracy is read once
per run, by the weights that validation selected.
"""

import argparse
import hashlib
import json
import statistics
import sys
from pathlib import Path

from hardstep import tasks
from hardstep._pages import markdown_table
from hardstep.cli.results import read_result
from hardstep.cli.train import CHECKPOINT, TrainOptions, run_train
from hardstep.errors import HardstepError
from hardstep.optim.settings import describe

RECORDS = Path(__file__).parents[1] / "results" / "mnist-snn.jsonl"
RUNS = Path(__file__).parents[2] / "runs"
SEEDS = (42, 123, 456, 789, 1337)


def records() -> list[dict]:
    """What has been recorded."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def settings(steps: int) -> str:
    """The settings the command uses now; records with others are other experiments."""
    return describe(tasks.find("snn", "mnist").settings(steps))


def is_recorded(seed: int, steps: int) -> bool:
    """Whether that run has been made with the present settings."""
    wanted = (seed, steps, settings(steps))
    return any((r["seed"], r["steps"], r["settings"]) == wanted for r in records())


def run(seed: int, steps: int) -> int:
    """One run, from the start or from where it was left, appended to the records."""
    mark = hashlib.sha256(settings(steps).encode()).hexdigest()[:8]
    folder = RUNS / f"benchmark-snn-mnist-seed{seed}-{steps}-{mark}"
    resume = (folder / CHECKPOINT).exists()
    code = run_train(TrainOptions("snn", "mnist", seed, steps, folder, resume))
    if code:
        return code
    task = tasks.find("snn", "mnist")
    result, default = read_result(task, folder), steps == task.steps
    command = f"hardstep train snn --data mnist --seed {seed}"
    result["command"] = command if default else f"{command} --steps {steps}"
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as stream:
        stream.write(json.dumps(result) + "\n")
    return 0


def table(steps: int) -> str:
    """Markdown: each seed recorded with the present settings, then mean and deviation."""
    lines = []
    wanted = (steps, settings(steps))
    found = [r for r in records() if (r["steps"], r["settings"]) == wanted]
    for r in sorted(found, key=lambda r: r["seed"]):
        scores = (f"{100 * r[name]:.2f} %" for name in ("test_accuracy", "valid_accuracy"))
        costs = (f"{r['steps']:,}", f"{r['evaluations']:,}", f"{r['seconds']:.0f}")
        lines.append([str(r["seed"]), *scores, *costs])
    if len(found) > 1:
        scores = [100 * r["test_accuracy"] for r in found]
        mean, deviation = statistics.mean(scores), statistics.stdev(scores)
        lines.append(["all", f"**{mean:.2f} ± {deviation:.2f} %**", "", "", "", ""])
    head = ["seed", "test accuracy", "validation", "steps", "evaluations", "seconds"]
    return markdown_table(head, lines)


def main() -> int:
    """Run, or print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", nargs="*", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=tasks.find("snn", "mnist").steps)
    parser.add_argument("--table", action="store_true", help="only print what is recorded")
    options = parser.parse_args()
    for seed in () if options.table else options.seeds:
        if not is_recorded(seed, options.steps):
            code = run(seed, options.steps)
            if code:
                return code
    print(table(options.steps))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HardstepError as error:
        sys.exit(f"mnist_snn: {error}")
