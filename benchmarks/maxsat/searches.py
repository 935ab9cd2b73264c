"""What the runs of several methods share: where they start, a search by PolyStep, what is noted."""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.maxsat.plan import Spec
from benchmarks.maxsat.variants import Reweighting
from hardstep import seeds
from hardstep.maxsat import Formula, Search, SearchResult
from hardstep.maxsat.objective import Standing

Result = dict[str, Any]
MARKS = (20, 40, 100, 200, 300, 500, 1000)  # steps after which the curve published for 1e5 is read


def seed_of(spec: Spec) -> int:
    """The seed of the method; instances have seeds of their own."""
    return int(spec.get("seed", 0))


def start_of(formula: Formula, seed: int) -> np.ndarray:
    """Where local search and baselines start: a random assignment."""
    generator = seeds.generator(seed, "maxsat start")
    return (torch.randn(formula.num_variables, generator=generator) >= 0).numpy()


def run_search(
    formula: Formula, search: Search, spec: Spec, seconds: float | None, reweighted: bool = False
) -> Result:
    """PolyStep for the steps of the specification, or for as many as fit into the time."""
    fitting = search.steps_within(seconds or 1.0)  # compiles, which no run should be charged for
    steps = spec.get("steps") or fitting
    curve: list[tuple[float, int, int]] = []
    marks: dict[int, int] = {}
    reweight = Reweighting(search, formula) if reweighted else None

    def watch(progress: Any, better: Any) -> None:
        point = (round(progress.seconds, 3), progress.evaluations, progress.best.weight)
        if better is not None and (not curve or progress.seconds > 1.05 * curve[-1][0]):
            curve.append(point)
        if progress.step in MARKS:
            marks[progress.step] = progress.here.weight
        if reweight is not None:
            reweight()

    began = time.process_time()
    found: SearchResult = search.run(steps, seconds=seconds, watch=watch)
    return {
        **describe_standing(formula, found.standing, found.assignment),
        "steps": found.steps,
        "planned_steps": found.planned_steps,
        "evaluations_spent": found.evaluations,
        "search_seconds": found.seconds,
        "cpu_seconds": time.process_time() - began,
        "seconds_per_step": found.seconds / max(1, found.steps),
        "curve": curve,
        "marks": marks,
        "assignment": found.assignment,
    }


def describe_local(formula: Formula, found: Any) -> Result:
    """What a local search found."""
    return {
        **describe_standing(formula, found.standing, found.assignment),
        "flips": found.flips,
        "flips_per_second": found.flips / max(found.seconds, 1e-9),
        "local_seconds": found.seconds,
    }


def describe_standing(formula: Formula, standing: Standing, assignment: np.ndarray) -> Result:
    """How good an assignment is."""
    return {
        "falsified": standing.weight,
        "falsified_hard": standing.hard,
        "share": formula.satisfied_share(assignment),
    }
