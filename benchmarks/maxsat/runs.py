"""Runs in this process: a formula, a method, a budget; prints one JSON object for each."""

import json
import os
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.maxsat import printed
from benchmarks.maxsat.plan import Spec
from benchmarks.maxsat.searches import (
    Result,
    describe_local,
    describe_standing,
    run_search,
    seed_of,
    start_of,
)
from benchmarks.maxsat.variants import REWEIGHTED, VARIANTS
from hardstep import Cosine, Full, Length, Orthoplex, Settings, presets
from hardstep._files import provenance
from hardstep.baselines import CmaEs, OpenAiEs, minimize
from hardstep.maxsat import Formula, Search, local_search, random_ksat, read
from hardstep.maxsat.objective import Standing, population_costs
from hardstep.schedules import PowerDecay
from hardstep.solvers import Sinkhorn


def formula_of(spec: Spec) -> Formula:
    """Random, or read from the data folder."""
    if "file" in spec:
        return read(Path(os.environ["HARDSTEP_DATA"]) / spec["file"])
    return random_ksat(spec["variables"], spec["ratio"], seed=spec["instance"])


# -- methods ----------------------------------------------------------------------------------


def polystep(formula: Formula, spec: Spec) -> Result:
    """Ours."""
    return _searched(formula, spec, spec.get("seconds"), None)


def polystep_paper(formula: Formula, spec: Spec) -> Result:
    """The paper's settings; the cost is the number of falsified clauses, as in its largest runs."""
    return _searched(
        formula, spec, None, lambda steps: presets.maxsat(steps, formula.num_variables)
    )


def polystep_paper_fraction(formula: Formula, spec: Spec) -> Result:
    """The same with the cost as a fraction, as in its others: a temperature per clause."""

    def preset(steps: int) -> Settings:
        num = formula.num_clauses
        settings = presets.maxsat(steps, formula.num_variables)
        return settings.changed(temperature=Cosine(5.0 * num, 0.5 * num, steps))

    return _searched(formula, spec, None, preset)


def polystep_sinkhorn(formula: Formula, spec: Spec) -> Result:
    """Ours with balanced columns."""
    return _searched(
        formula, spec, None, lambda steps: presets.signs(steps).changed(solver=Sinkhorn())
    )


def polystep_theory(formula: Formula, spec: Spec) -> Result:
    """What the convergence theorem describes, at our temperature and radii."""
    return _searched(formula, spec, None, _theory)


def _theory(steps: int) -> Settings:
    """No weight decay, flat temperature, jitter on both radii, r_s ∝ (t + 1)^−0.6."""
    return presets.theory().changed(
        subspace=Full(),
        polytope=Orthoplex(2),
        temperature=1.0,
        step_radius=Length(PowerDecay(1.0, 0.6)),
        probe_radius=presets.signs(steps).probe_radius,
    )


def polished(formula: Formula, spec: Spec) -> Result:
    """PolyStep for half of the time, then local search from its best assignment."""
    half = spec["seconds"] / 2
    found = _searched(formula, spec, half, None)
    start = found.pop("assignment")
    rest = local_search(formula, start, seed_of(spec), seconds=half, **spec["options"])
    return found | describe_local(formula, rest) | {"before_polish": found["falsified"]}


def probsat(formula: Formula, spec: Spec) -> Result:
    """Local search alone."""
    limits = {name: spec[name] for name in ("seconds", "flips") if name in spec}
    seed = seed_of(spec)
    start = start_of(formula, seed)
    return describe_local(formula, local_search(formula, start, seed, **limits, **spec["options"]))


def openai_es(formula: Formula, spec: Spec) -> Result:
    """OpenAI-ES on the numbers whose signs are the assignment."""
    start = torch.zeros(formula.num_variables)
    return _population(formula, spec, OpenAiEs(start, seed=seed_of(spec), **spec["options"]))


def cma_es(formula: Formula, spec: Spec) -> Result:
    """CMA-ES on the same numbers."""
    start = torch.zeros(formula.num_variables)
    return _population(formula, spec, CmaEs(start, seed=seed_of(spec), **spec["options"]))


def rc2(formula: Formula, spec: Spec) -> Result:
    """The exact solver RC2, until the time is over."""
    from benchmarks.maxsat.exact import solve

    return solve(formula, spec["seconds"])


def variant(formula: Formula, spec: Spec) -> Result:
    """The shipped preset with one thing changed."""
    name = spec["variant"]
    return _searched(formula, spec, None, (VARIANTS | REWEIGHTED)[name], name in REWEIGHTED)


METHODS = {
    "variant": variant,
    "polystep": polystep,
    "polystep, paper's settings": polystep_paper,
    "polystep, paper's settings, cost as a fraction": polystep_paper_fraction,
    "polystep, Sinkhorn": polystep_sinkhorn,
    "polystep, theory mode": polystep_theory,
    "polystep + polish": polished,
    "probSAT": probsat,
    "OpenAI-ES": openai_es,
    "CMA-ES": cma_es,
    "RC2": rc2,
    **printed.METHODS,
}


def _searched(
    formula: Formula, spec: Spec, seconds: float | None, preset: Any, reweighted: bool = False
) -> Result:
    search = Search(formula, seed_of(spec), preset)
    return run_search(formula, search, spec, seconds, reweighted)


def _population(formula: Formula, spec: Spec, method: Any) -> Result:
    def losses_of(vectors: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(population_costs(formula, (vectors >= 0).numpy()))

    began, processor = time.perf_counter(), time.process_time()
    generations = spec.get("steps", 0) * spec["options"]["population"]
    best = minimize(method, losses_of, spec.get("evaluations", generations))
    assignment = (best.vector >= 0).numpy()
    weight, hard = formula.cost(assignment)
    return {
        **describe_standing(formula, Standing(hard, weight), assignment),
        "evaluations_spent": best.evaluations,
        "cpu_seconds": time.process_time() - processor,
        "search_seconds": time.perf_counter() - began,
    }


# -- a run ------------------------------------------------------------------------------------


def main() -> None:
    """Run the specifications given as JSON, and print a line for each."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    for spec in json.loads(sys.argv[1]):
        print(json.dumps(run(spec)), flush=True)


def run(spec: Spec) -> Result:
    """One run, with where and how it was made."""
    before = _peak_bytes()
    began = time.perf_counter()
    formula = formula_of(spec)
    _ = formula.occurrences
    loaded = time.perf_counter() - began
    result = METHODS[spec["method"]](formula, spec)
    result.pop("assignment", None)
    place = {
        "clauses": formula.num_clauses + formula.num_tautologies,
        "formula_seconds": loaded,
        "bytes_before": before,
        "peak_bytes": _peak_bytes(),
        "numba": version("numba"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        **provenance(),
        "command": "make bench-maxsat",
    }
    return {**result, **place}


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
