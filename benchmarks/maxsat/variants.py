"""What lifts PolyStep on MAX-SAT and what does not: the shipped preset with one thing changed."""

from collections.abc import Callable

import numpy as np

from hardstep import (
    Cosine,
    Length,
    Linear,
    Momentum,
    Orthoplex,
    Settings,
    Simplex,
    WeightDecay,
    presets,
)
from hardstep.maxsat import Formula, Search
from hardstep.schedules import Geometric
from hardstep.solvers import Penalized

Preset = Callable[[int], Settings]


def _with(**changes: object) -> Preset:
    return lambda steps: presets.signs(steps).changed(**changes)


def _flat(rate: float, **changes: object) -> Preset:
    return _with(rules=(WeightDecay(rate),), **changes)


VARIANTS: dict[str, Preset] = {
    "as shipped": presets.signs,
    "weight decay 0.9 → 0.1, geometric": lambda steps: presets.signs(steps).changed(
        rules=(WeightDecay(Geometric(0.9, 0.1, steps)),)
    ),
    "weight decay 0.5 → 0.1": lambda steps: presets.signs(steps).changed(
        rules=(WeightDecay(Linear(0.5, 0.1, steps)),)
    ),
    "weight decay 0.3, flat": _flat(0.3),
    "weight decay 0.1, flat": _flat(0.1),
    "no weight decay": _with(rules=()),
    "no weight decay, momentum 0.9": _with(rules=(Momentum(0.9),)),
    "weight decay 0.3, flat; temperature 4 → 0.5": lambda steps: presets.signs(steps).changed(
        rules=(WeightDecay(0.3),), temperature=Cosine(4.0, 0.5, steps)
    ),
    "temperature 0.3": _with(temperature=0.3),
    "temperature 3": _with(temperature=3.0),
    "probe radius 4": _with(probe_radius=Length(4.0)),
    "probe radius 40 → 2": lambda steps: presets.signs(steps).changed(
        probe_radius=Length(Geometric(40.0, 2.0, steps))
    ),
    "two probes per direction": _with(num_probes=2),
    "orthoplex": _with(polytope=Orthoplex(2)),
    "particles of 1": _with(polytope=Simplex(1)),
    "particles of 4": _with(polytope=Simplex(4)),
    "particles of 8": _with(polytope=Simplex(8)),
    "column penalty λ = 1": _with(solver=Penalized(1.0, max_iterations=50)),
}
REWEIGHTED = {  # with clause weights besides
    "clause weights, weight decay 0.1, flat": _flat(0.1),
    "clause weights": presets.signs,
}
CLAUSE_WEIGHTS = (1.0, 0.1)  # added to a falsified clause each step, taken off again per step


class Reweighting:
    """Falsified clauses gain weight and lose it again: what drives a search off its plateau."""

    def __init__(self, search: Search, formula: Formula) -> None:
        self.objective = search.objective
        self.objective.costs = np.ones(formula.num_clauses)

    def __call__(self) -> None:
        """After a step."""
        gain, loss = CLAUSE_WEIGHTS
        costs = self.objective.costs
        costs += gain * (self.objective.counts == 0)
        costs[:] = 1 + (costs - 1) * (1 - loss)
