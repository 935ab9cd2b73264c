"""The methods of the paper's MAX-SAT table: its search as it was run, local search restarted."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.maxsat.plan import Spec
from benchmarks.maxsat.searches import (
    Result,
    describe_local,
    run_search,
    seed_of,
    start_of,
)
from benchmarks.maxsat.walksat import walksat
from hardstep import Length, Orthoplex, Settings, presets
from hardstep.maxsat import Formula, Search, local_search
from hardstep.maxsat.local import LocalResult
from hardstep.schedules import PowerDecay
from hardstep.solvers import Sinkhorn

RESTARTS, MOST_FLIPS = 10, 10_000_000  # of a local search; flips of each restart
TRIAL_FLIPS = 20_000  # that tell how many fit into the time
Local = Callable[..., LocalResult]


def as_run(formula: Formula, spec: Spec, **changes: Any) -> Result:
    """PolyStep with the schedules that the printed runs had in fact."""
    search = Search.of_paper(formula, seed_of(spec))
    settings = search.preset(1).changed(**changes)
    search.preset = lambda steps: settings
    return run_search(formula, search, spec, None)


def with_sinkhorn(formula: Formula, spec: Spec) -> Result:
    """The same with balanced columns."""
    return as_run(formula, spec, solver=Sinkhorn())


def with_orthoplex(formula: Formula, spec: Spec) -> Result:
    """The same with four vertices, as in the run whose curve was published."""
    return as_run(formula, spec, polytope=Orthoplex(2))


def in_theory_mode(temperature: float, formula: Formula, spec: Spec) -> Result:
    """What the convergence theorem describes, all else as in the printed runs.

    The temperature is flat, so it is either that of the beginning or that of the end.
    """
    tuned = presets.maxsat_realized(formula.num_variables, formula.num_clauses)
    theory: Settings = presets.theory()
    return as_run(
        formula,
        spec,
        polytope=Orthoplex(2),
        jitter=theory.jitter,
        rules=(),
        temperature=temperature * formula.num_clauses,
        step_radius=Length(PowerDecay(tuned.step_radius.at(0, 1.0), 0.6)),
        probe_radius=Length(tuned.probe_radius.at(0, 1.0)),
    )


def restarted(search: Local, formula: Formula, spec: Spec) -> Result:
    """A local search from ten random assignments, which share the processor time of the budget."""
    seed = seed_of(spec)
    trial = partial(search, formula, start_of(formula, seed), seed)
    trial(flips=1)  # compiles
    began = time.process_time()
    trial(flips=TRIAL_FLIPS)
    rate = TRIAL_FLIPS / (time.process_time() - began)
    each = max(1, min(MOST_FLIPS, int(rate * spec["cpu_limit"] / RESTARTS)))
    best, flips, taken, began = None, 0, 0, time.process_time()
    while taken < RESTARTS and (best is None or best.standing > (0, 0)):
        start = start_of(formula, RESTARTS * seed + taken)
        found = search(formula, start, RESTARTS * seed + taken, flips=each)
        flips, taken = flips + found.flips, taken + 1
        if best is None or found.standing < best.standing:
            best = found
    assert best is not None
    result = describe_local(formula, best._replace(flips=flips))
    return result | {
        "restarts": taken,
        "flips_each": each,
        "cpu_seconds": time.process_time() - began,
        "cpu_limit": spec["cpu_limit"],
    }


METHODS: dict[str, Callable[[Formula, Spec], Result]] = {
    "polystep, as printed": as_run,
    "polystep, as printed, Sinkhorn": with_sinkhorn,
    "polystep, as printed, orthoplex": with_orthoplex,
    "polystep, as printed, theory mode, ε 5": partial(in_theory_mode, 5.0),
    "polystep, as printed, theory mode, ε 0.5": partial(in_theory_mode, 0.5),
    "probSAT, restarts": partial(restarted, local_search),
    "WalkSAT, restarts": partial(restarted, walksat),
}
