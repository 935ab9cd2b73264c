"""PolyStep on a formula: anytime, by steps or by seconds, with the best assignment kept."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep import presets, seeds
from hardstep._checks import check_positive
from hardstep.errors import ConfigError
from hardstep.maxsat.formula import Formula
from hardstep.maxsat.objective import NAME, MaxSat, Standing
from hardstep.maxsat.occurring import keep_occurring
from hardstep.maxsat.sizes import check_search
from hardstep.optim import PolyStep, Settings

# Steps that tell how many fit into the time, and the share of it that they may take.
MIN_TRIALS, MAX_TRIALS, TRIAL_SHARE = 3, 20, 0.02
INTERRUPTED = "interrupted"
PAPER_SPREAD = 0.1  # of the start in the paper's runs


class Progress(NamedTuple):
    """Where a search stands."""

    step: int
    steps: int
    evaluations: int
    seconds: float
    here: Standing
    best: Standing


class SearchResult(NamedTuple):
    """The best assignment found, and what finding it took."""

    standing: Standing
    assignment: NDArray[np.bool_]
    steps: int
    planned_steps: int
    evaluations: int
    seconds: float
    stopped: str  # "steps", "seconds", "target", "satisfied" or "interrupted"


Watcher = Callable[[Progress, NDArray[np.bool_] | None], None]


class Search:
    """One search.

    Args:
        formula: The clauses. Variables that occur in none change nothing and end up false.
        seed: Fixes the start and every draw.
        preset: Settings for a number of steps; by default `presets.signs` with the mean weight
            of a soft clause as unit.
        spread: Standard deviation of the numbers it starts from.
    """

    def __init__(
        self,
        formula: Formula,
        seed: int = 0,
        preset: Callable[[int], Settings] | None = None,
        spread: float = 1.0,
    ) -> None:
        if formula.num_variables == 0:
            raise ConfigError("Search: the formula has no variables; there is nothing to search")
        check_positive("Search: spread", spread)
        self.formula, self.seed, self.spread = formula, seed, spread
        self.preset = preset or partial(presets.signs, unit=_unit(formula))
        check_search(formula)
        self._occurring = keep_occurring(formula)
        self.objective = MaxSat(self._occurring.formula)

    @classmethod
    def of_paper(cls, formula: Formula, seed: int = 0) -> "Search":
        """The search of the printed runs: `presets.maxsat_realized`, from a start near 0."""
        sizes = (max(1, formula.num_variables), max(1, formula.num_clauses - formula.num_hard))
        settings = presets.maxsat_realized(*sizes, unit=_unit(formula))
        return cls(formula, seed, lambda steps: settings, PAPER_SPREAD)

    def steps_within(self, seconds: float) -> int:
        """How many steps fit into a time on this machine, by trying a few.

        The quicker ones count: what disturbs a few steps will not disturb all of them, and a run
        that ends before its schedule loses less than one whose schedule is too short.
        """
        optimizer = self._optimizer(MAX_TRIALS + 1)
        optimizer.step(objective=self.objective)  # compiles, and lists shared clauses
        taken: list[float] = []
        while len(taken) < MIN_TRIALS or (
            len(taken) < MAX_TRIALS and sum(taken) < TRIAL_SHARE * seconds
        ):
            began = time.perf_counter()
            optimizer.step(objective=self.objective)
            taken.append(time.perf_counter() - began)
        each = sorted(taken)[len(taken) // 4]
        return max(1, math.floor(seconds / each))

    def run(
        self,
        steps: int,
        *,
        seconds: float | None = None,
        target: Standing | None = None,
        watch: Watcher | None = None,
    ) -> SearchResult:
        """Search until the steps, the time or the target is reached, or Ctrl-C is pressed.

        Args:
            steps: Planned; schedules span them. With 0, the start is the answer.
            seconds: Of wall-clock, at most.
            target: Stop when the best assignment is at least as good.
            watch: Called after every step, with the assignment if it is the best so far.
        """
        began, optimizer, stopped = time.perf_counter(), None, ""
        best, values = Standing(self.formula.num_hard + 1, 0), None
        try:
            optimizer = self._optimizer(steps)
            (numbers,) = optimizer.tensors.values()
            while not stopped:
                done, current = optimizer.steps, numbers.detach().numpy() >= 0
                if done < steps:
                    optimizer.step(objective=self.objective)  # and how good the start of it was
                else:
                    self.objective.stand(current)
                assert self.objective.standing is not None
                here = self.objective.standing
                better = here < best
                if better:
                    best, values = here, current
                spent = time.perf_counter() - began
                if watch is not None:
                    found = Progress(done, steps, optimizer.evaluations, spent, here, best)
                    watch(found, self._occurring.spread(current) if better else None)
                stopped = _reason(best, target, done >= steps, spent, seconds)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        if values is None:  # interrupted before anything was known
            values = self._start().numpy() >= 0
            best = self.objective.stand(values)
        taken = (0, 0) if optimizer is None else (optimizer.steps, optimizer.evaluations)
        return SearchResult(
            best,
            self._occurring.spread(values),
            taken[0],
            steps,
            taken[1],
            time.perf_counter() - began,
            stopped,
        )

    def _start(self) -> Tensor:
        generator = seeds.generator(self.seed, "maxsat start")
        size = self._occurring.formula.num_variables
        return self.spread * torch.randn(size, generator=generator)

    def _optimizer(self, steps: int) -> PolyStep:
        settings = self.preset(max(1, steps))  # schedules span at least one
        return PolyStep({NAME: self._start()}, settings, seed=self.seed)


def _unit(formula: Formula) -> float:
    """The mean weight of a soft clause; 1 if there is none."""
    num_soft = formula.num_clauses - formula.num_hard
    return formula.total_weight / num_soft if num_soft else 1.0


def _reason(
    best: Standing, target: Standing | None, done: bool, spent: float, seconds: float | None
) -> str:
    """Why to stop here; empty to continue."""
    if best == (0, 0):
        return "satisfied"
    if target is not None and best <= target:
        return "target"
    if done:
        return "steps"
    return "seconds" if seconds is not None and spent >= seconds else ""
