"""`hardstep tune`: the two-stage sweep of a method on a task, judged on validation."""

import json
from dataclasses import dataclass
from pathlib import Path

from hardstep import tasks
from hardstep.bench.methods import METHODS, check
from hardstep.bench.records import append
from hardstep.bench.tuning import Tried, tune
from hardstep.cli import results
from hardstep.cli.compare import budget_of


@dataclass(frozen=True)
class TuneOptions:
    """The arguments of the command."""

    task: str
    method: str = "polystep"
    data: str = "digits"
    match: str = "evals"
    budget: float | None = None
    seeds: int = 1
    first_seed: int = 100
    records: Path | None = None
    json: bool = False


def run_tune(options: TuneOptions) -> int:
    """Try eighteen configurations and print them, the best last."""
    check(options.method, METHODS, "method")
    task = tasks.find(options.task, options.data)
    budget = budget_of(task, options.match, options.budget)

    def watch(tried: Tried) -> None:
        if options.records is not None:
            for record in tried.records:
                append(options.records, {**record, "tuning": tried.stage, **results.provenance()})
        if not options.json:
            print(
                f"stage {tried.stage}  valid {100 * tried.valid:6.2f} %  {shown(tried)}", flush=True
            )

    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = tune(task, options.data, options.method, budget, seeds, watch)
    best = found[0]
    if options.json:
        print(json.dumps({"options": best.options, "valid": best.valid, "tried": len(found)}))
    else:
        flags = " ".join(f"--option {options.method}.{k}={v:.4g}" for k, v in best.options.items())
        print(f"best of {len(found)} on validation: {100 * best.valid:.2f} %  {shown(best)}")
        print(f"compare with: hardstep compare {options.task} --match {options.match} {flags}")
    return 0


def shown(tried: Tried) -> str:
    """A configuration in a few words."""
    return ", ".join(f"{name} {value:.4g}" for name, value in tried.options.items())
