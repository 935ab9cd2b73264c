"""What independent packages reach on sphere and Rosenbrock, for tests/baselines/test_levels.py.

    pip install cma evotorch                     into a separate environment: these bring Ray
    python -m benchmarks.runs.baseline_levels    run (minutes)

Written to benchmarks/results/baseline-levels.json.

One level is the best loss among all evaluated, seed by seed, after a fixed number of generations:

- openai-es: evotorch's PGPE. With pairs, centered ranks, Adam and a standard deviation that is not
  learned it is OpenAI-ES: its gradient has another factor, which Adam takes out.
- cma-es: pycma as it comes.
- cma-es separable: pycma with a diagonal covariance and, as Ros and Hansen (2008) published it and
  `cmaes` has it, without negative weights. Learning rates of the covariance are pycma's own.
- cma-es separable, negative weights: the same as pycma comes.
"""

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cma
import numpy as np
import torch
from evotorch.algorithms.functional import pgpe, pgpe_ask, pgpe_tell

from hardstep._files import provenance

RECORD = Path(__file__).parents[1] / "results" / "baseline-levels.json"
SEEDS = range(1, 32)
DIMENSIONS = 10
# On the sphere OpenAI-ES ends in the same noise at any learning rate: 50 generations are before.
# CMA-ES is stopped while losses fall evenly, far above rounding and, on Rosenbrock, in the valley.
OPENAI_ES = {
    "start": -0.5,
    "sigma": 0.05,
    "learning_rate": 0.02,
    "population": 20,
    "generations": {"sphere": 50, "rosenbrock": 200},
}
CMA_ES = {
    "start": 0.4,
    "sigma": 0.3,
    "population": 10,
    "generations": {"sphere": 100, "rosenbrock": 250},
}
PYCMA = {
    "cma-es": {},
    "cma-es separable": {"CMA_diagonal": True, "CMA_active": False},
    "cma-es separable, negative weights": {"CMA_diagonal": True},
}


def sphere(x: Any) -> Any:
    """Of vectors (N, n), tensors or arrays."""
    return (x**2).sum(-1)


def rosenbrock(x: Any) -> Any:
    """Of vectors (N, n), tensors or arrays."""
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(-1)


def by_evotorch(function: Callable[[Any], Any], generations: int, seed: int) -> float:
    """The best loss of one run of OpenAI-ES."""
    torch.manual_seed(seed)
    state = pgpe(
        center_init=torch.full((DIMENSIONS,), OPENAI_ES["start"], dtype=torch.float64),
        center_learning_rate=OPENAI_ES["learning_rate"],
        stdev_learning_rate=0.0,
        objective_sense="min",
        ranking_method="centered",
        optimizer="adam",
        stdev_init=OPENAI_ES["sigma"],
        symmetric=True,
    )
    best = np.inf
    for _ in range(generations):
        vectors = pgpe_ask(state, popsize=OPENAI_ES["population"])
        losses = function(vectors)
        best = min(best, float(losses.min()))
        state = pgpe_tell(state, vectors, losses)
    return best


def by_pycma(
    options: dict[str, Any], function: Callable[[Any], Any], generations: int, seed: int
) -> float:
    """The best loss of one run of CMA-ES."""
    own = {"seed": seed, "popsize": CMA_ES["population"], "verbose": -9}
    start = [CMA_ES["start"]] * DIMENSIONS
    strategy = cma.CMAEvolutionStrategy(start, CMA_ES["sigma"], own | options)
    best = np.inf
    for _ in range(generations):
        vectors = strategy.ask()
        losses = function(np.array(vectors))
        best = min(best, float(losses.min()))
        strategy.tell(vectors, losses.tolist())
    return best


def levels() -> Iterator[dict[str, Any]]:
    """One per method and function."""
    for function in (sphere, rosenbrock):
        name = function.__name__
        generations = OPENAI_ES["generations"][name]
        losses = [by_evotorch(function, generations, seed) for seed in SEEDS]
        yield {"method": "openai-es", "function": name, "losses": losses}
        generations = CMA_ES["generations"][name]
        for method, options in PYCMA.items():
            losses = [by_pycma(options, function, generations, seed) for seed in SEEDS]
            yield {"method": method, "function": name, "losses": losses}


def main() -> None:
    """Run, print medians, write."""
    torch.set_num_threads(1)
    found = []
    for level in levels():
        print(level["method"], level["function"], f"{np.median(level['losses']):.3g}", flush=True)
        found.append(level)
    record = provenance() | {
        "command": "python -m benchmarks.runs.baseline_levels",
        "numpy": version("numpy"),
        "cma": version("cma"),
        "evotorch": version("evotorch"),
        "seeds": list(SEEDS),
        "dimensions": DIMENSIONS,
        "settings": {"openai-es": OPENAI_ES, "cma-es": CMA_ES},
        "pycma": PYCMA,
        "levels": found,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
