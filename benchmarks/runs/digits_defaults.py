"""Record `hardstep train` at its default settings: every digits task, three seeds.

    python -m benchmarks.runs.digits_defaults            run what is not recorded yet
    python -m benchmarks.runs.digits_defaults --table    print the README's table

Each run appends one JSON line to benchmarks/results/digits-defaults.jsonl. Test accuracy is
read once per run, by the weights that validation selected. Nothing was tuned on these seeds.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hardstep._pages import markdown_table

RECORDS = Path(__file__).parents[1] / "results" / "digits-defaults.jsonl"
TASKS = ("snn", "mlp", "int8", "binary", "ternary", "staircase", "argmax", "moe")
SEEDS = (0, 1, 2)


def records() -> list[dict]:
    """What has been recorded."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text().splitlines()]


def run(task: str, seed: int) -> None:
    """One run in a process of its own, appended to the records."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["train", task, "--seed", str(seed), "--json", "--out", f"{folder}/run"]
        command = [str(Path(sys.executable).with_name("hardstep")), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout)
    for file in ("checkpoint", "log", "picture"):
        result.pop(file, None)
    result["command"] = f"hardstep train {task} --seed {seed}"
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as stream:
        stream.write(json.dumps(result) + "\n")


def table() -> str:
    """Markdown: mean and range over seeds."""
    lines = []
    for task in TASKS:
        found = sorted((r for r in records() if r["task"] == task), key=lambda r: r["seed"])
        if not found:
            continue
        scores = [100 * r["test_accuracy"] for r in found]
        each = ", ".join(f"{score:.1f}" for score in scores)
        seconds = statistics.mean(r["seconds"] for r in found)
        lines.append([
            f"`{task}`", f"**{statistics.mean(scores):.1f} %** ({each})", str(found[0]["steps"]),
            f"{found[0]['evaluations']:,}", f"{seconds:.0f}",
        ])  # fmt: skip
    head = ["task", "test accuracy, mean (each seed)", "steps", "evaluations", "seconds"]
    return markdown_table(head, lines)


def main() -> None:
    """Run, or print."""
    if "--table" in sys.argv:
        print(table())
        return
    done = {(record["task"], record["seed"]) for record in records()}
    for seed in SEEDS:
        for task in TASKS:
            if (task, seed) not in done:
                run(task, seed)
    print(table())


if __name__ == "__main__":
    main()
