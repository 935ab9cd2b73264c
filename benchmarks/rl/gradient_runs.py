"""Train PPO, DQN and ARS on CartPole and Acrobot, as far as no record has it yet.

    python -m benchmarks.rl.gradient_runs [--methods ppo,dqn] [--seeds 42] [--precisions int8]

A run has 1 million interactions and appends one JSON line to benchmarks/results/rl.jsonl. All
cells come with the first seed first. One core is used.
"""

import argparse
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hardstep._files import provenance
from hardstep.baselines import stable
from hardstep.bench import records

RECORDS = Path(__file__).resolve().parent.parent / "results" / "rl.jsonl"
INTERACTIONS = 1_000_000
SEEDS = (42, 123, 456)
TASKS = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1"}
METHODS = (("ppo", "ppo-ste"), ("dqn",), ("ars",), ("ars-mlp",))  # those of a group in turn
RETURN = {"name": "return", "higher_is_better": True, "percent": False}


class Run(NamedTuple):
    """One line of the records."""

    environment: str
    precision: str
    method: str
    seed: int

    @property
    def task(self) -> str:
        """The environment's name, with the precision if it is not float."""
        return self.environment + ("" if self.precision == "float" else f"-{self.precision}")

    @property
    def key(self) -> tuple[str, str, int]:
        """What no two records share."""
        return self.task, self.method, self.seed


def plan() -> Iterator[Run]:
    """Every run, in the order in which they are wanted."""
    for seed in SEEDS:
        for group in METHODS:
            for environment in TASKS:
                for method in group:
                    for precision in stable.PRECISIONS:
                        if (method, precision) != ("ppo-ste", "float"):
                            yield Run(environment, precision, method, seed)


def find_recorded(path: Path = RECORDS) -> set[tuple[str, str, int]]:
    """Keys of the runs that have a record."""
    return {(run["task"], run["method"], run["seed"]) for run in records.load(path).records}


def record(run: Run, path: Path = RECORDS, interactions: int = INTERACTIONS) -> dict[str, Any]:
    """Train, test and append the record."""
    fields = stable.train(run.method, TASKS[run.environment], run.precision, run.seed, interactions)
    whole = {
        "task": run.task,
        "data": "gymnasium",
        "method": run.method,
        "seed": run.seed,
        "budget": {"axis": "interactions", "amount": float(interactions)},
        "options": {},
        "metric": RETURN,
        **fields,
        **provenance(),
        "command": f"python -m benchmarks.rl.gradient_runs --methods {run.method} "
        f"--seeds {run.seed}",
    }
    records.append(path, whole)
    return whole


def main() -> None:
    """Work through the plan; a run that fails is named and left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default=",".join(stable.METHODS))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--precisions", default=",".join(stable.PRECISIONS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    methods, precisions = options.methods.split(","), options.precisions.split(",")
    seeds = {int(seed) for seed in options.seeds.split(",")}
    for run in plan():
        wanted = run.method in methods and run.precision in precisions and run.seed in seeds
        if not wanted or run.key in find_recorded():
            continue
        print(*run.key, flush=True)
        try:
            done = record(run)
        except Exception:  # the others can still be run
            traceback.print_exc(file=sys.stdout)
            continue
        speed = done["interactions"] / done["seconds"]
        print(
            f"  return {done['test']:.1f}, normalized {done['normalized']:.3f}, "
            f"{done['interactions']:,} interactions, {speed:,.0f} a second",
            flush=True,
        )


if __name__ == "__main__":
    main()
