"""PolyStep by options: what a suite may change of a task's settings, as numbers and words.

    step_radius = 0.25                a length, annealed to 3 % of it (or to step_radius_end)
    step_decay = 0.6                  the first step radius times (t + 1)^-0.6; 0 keeps it flat
    probe_radius = 2.0                a length, flat (or annealed to probe_radius_end)
    temperature = 0.005               flat (or annealed to temperature_end)
    rank, redraw, particle_dim, num_probes                      numbers; redraw = 0 is never
    share = 0.1                       of the units at a time, the next ones after redraw steps (1)
    momentum, weight_momentum, reuse                            numbers; 0 (reuse: 1) is without
    decay = 4e-4                      of whole weights per step, annealed to 3 % of it; 0 is without
    subspace = "layer-wise"           row-wise, low-rank, global, sparse, full
    polytope = "orthoplex"            simplex, cube
    solver = "sinkhorn"               softmax, kl, greedy, top-k
    column_penalty = 0.1              λ of solver = "kl", in units of the loss; 1 if left out
    rotation = "biased"               haar
    preset = "paper"                  the paper's settings of the task; frugal, sketch; theory is
                                      the paper's theory mode, at what its settings begin with

They apply to the task's own settings, or to the preset's. An end alone, such as step_radius_end,
anneals to it from where these begin.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from hardstep._checks import check_name
from hardstep.errors import ConfigError
from hardstep.geometry import Biased, Cube, Haar, Orthoplex, Simplex
from hardstep.optim import FullDecay, Momentum, PlanReuse, Rule, Settings, WeightMomentum, presets
from hardstep.optim.paper_presets import theory_mode
from hardstep.optim.rules import check_fraction
from hardstep.schedules import Cosine, Length, PowerDecay, Schedule, length_at, temperature_at
from hardstep.solvers import Greedy, Penalized, RowSoftmax, Sinkhorn, Solver, TopK
from hardstep.subspaces import Full, Global, LayerWise, LowRank, RowWise, Sketch, Sparse
from hardstep.tasks import Task

Dimension = Callable[[], int]
NUMBERS = (
    "temperature",
    "temperature_end",
    "step_radius",
    "step_radius_end",
    "step_decay",
    "probe_radius",
    "probe_radius_end",
    "rank",
    "redraw",
    "share",
    "particle_dim",
    "num_probes",
    "momentum",
    "weight_momentum",
    "reuse",
    "decay",
    "column_penalty",
)
WORDS = ("subspace", "polytope", "solver", "rotation", "preset")
STEP_END = 0.03  # of the first step radius, as in presets.general

PAPER: Mapping[str, Callable[[int], Settings]] = {
    "snn": presets.snn,
    "mlp": presets.mnist,
    "int8": presets.int8,
    "staircase": presets.staircase,
    "argmax": presets.argmax,
    "moe": presets.moe,
    "cartpole": presets.rl,
    "acrobot": presets.rl,
    "etth1": presets.etth1,
    "sst2": presets.sst2,
}
ANY_TASK: Mapping[str, Callable[[int], Settings]] = {
    "frugal": presets.frugal,
    "sketch": presets.sketch,
}
SOLVERS: Mapping[str, Callable[[], Solver]] = {
    "softmax": RowSoftmax,
    "kl": lambda: Penalized(1.0),
    "sinkhorn": Sinkhorn,
    "greedy": Greedy,
    "top-k": lambda: TopK(3),
}
POLYTOPES: Mapping[str, Callable[[int], Any]] = {
    "simplex": Simplex,
    "orthoplex": Orthoplex,
    "cube": Cube,
}
ROTATIONS: Mapping[str, Callable[[], Any]] = {"haar": Haar, "biased": Biased}
SUBSPACES: Mapping[str, Callable[[int, Dimension], Any]] = {  # of rank and usual dimension
    "row-wise": lambda rank, dim: RowWise(rank=rank),
    "layer-wise": lambda rank, dim: LayerWise(rank),
    "low-rank": lambda rank, dim: LowRank(rank),
    "global": lambda rank, dim: Global(dim()),
    "sparse": lambda rank, dim: Sparse(rank),
    "full": lambda rank, dim: Full(),
}


def make_settings(task: Task, steps: int, options: Mapping[str, Any], dim: Dimension) -> Settings:
    """A task's settings with the options applied.

    Args:
        task: The task.
        steps: That schedules span.
        options: By name.
        dim: Called for how many coordinates the task's own subspace has.

    Raises:
        ConfigError: A word or a combination that does not exist.
    """
    base = find_preset(task, steps, options.get("preset", "task"))
    changes: dict[str, Any] = {}
    for name in ("temperature", "step_radius", "probe_radius"):
        if name in options or f"{name}_end" in options:
            changes[name] = _schedule(name, base, options, steps)
    if "step_decay" in options:
        changes["step_radius"] = _decaying(base, options)
    if "num_probes" in options:
        changes["num_probes"] = options["num_probes"]
    if "solver" in options or "column_penalty" in options:
        changes["solver"] = _solver(options)
    if "rotation" in options:
        check_name(options["rotation"], ROTATIONS, "rotation")
        changes["rotation"] = ROTATIONS[options["rotation"]]()
    changes["polytope"] = _polytope(base, options)
    changes["subspace"] = _subspace(base, options, dim)
    changes["rules"] = _rules(base, options, steps)
    return base.changed(**changes)


def find_preset(task: Task, steps: int, name: str) -> Settings:
    """The settings that options apply to."""
    check_name(name, ("task", "paper", "theory", *ANY_TASK), "preset")
    if name == "task":
        return task.settings(steps)
    if name in ANY_TASK:
        return ANY_TASK[name](steps)
    stem = task.name.partition("-")[0]  # a policy's settings are the same at every precision
    if stem not in PAPER:
        raise ConfigError(f"the paper has no settings for {task.name!r}, only {', '.join(PAPER)}")
    found = PAPER[stem](steps)
    return theory_mode(found) if name == "theory" else found


def _schedule(name: str, base: Settings, options: Mapping[str, Any], steps: int) -> Any:
    start = float(options[name]) if name in options else _first(name, base)
    end = options.get(f"{name}_end", STEP_END * start if name == "step_radius" else start)
    value: Schedule = start if end == start else Cosine(start, float(end), steps)
    return value if name == "temperature" else Length(value)


def _decaying(base: Settings, options: Mapping[str, Any]) -> Length:
    """A step radius that falls with a power of the step, as the convergence theorem wants it."""
    if "step_radius_end" in options:
        raise ConfigError("step_decay and step_radius_end both say how steps shrink; give one")
    start, rate = (
        float(options.get("step_radius", _first("step_radius", base))),
        options["step_decay"],
    )
    return Length(PowerDecay(start, rate) if rate else start)


def _first(name: str, base: Settings) -> float:
    """What the settings begin with; of a radius, its length."""
    temperature = temperature_at(base.temperature, 0)
    if name == "temperature":
        return temperature
    return length_at(name, getattr(base, name), 0, temperature)


def _solver(options: Mapping[str, Any]) -> Solver:
    name = options.get("solver", "softmax")
    check_name(name, SOLVERS, "solver")
    solver = SOLVERS[name]()
    if "column_penalty" not in options:
        return solver
    if not isinstance(solver, Penalized):
        raise ConfigError(
            f"column_penalty is of solver = 'kl', got {options['column_penalty']} with {name!r}; "
            "leave it out, or choose that solver"
        )
    return replace(solver, column_penalty=float(options["column_penalty"]))


def _polytope(base: Settings, options: Mapping[str, Any]) -> Any:
    name = options.get("polytope", type(base.polytope).__name__.lower())
    check_name(name, POLYTOPES, "polytope")
    return POLYTOPES[name](options.get("particle_dim", base.polytope.dim))


def _subspace(base: Settings, options: Mapping[str, Any], dim: Dimension) -> Any:
    if isinstance(base.subspace, Sketch) and "subspace" not in options:
        inside = base.changed(subspace=base.subspace.of)
        return Sketch(of=_subspace(inside, options, dim))
    space = base.subspace
    rank = options.get("rank", getattr(space, "rank", None))
    if "subspace" in options:
        check_name(options["subspace"], SUBSPACES, "subspace")
        space = SUBSPACES[options["subspace"]](rank or 1, dim)
    elif "rank" in options:
        space = _with(space, rank=rank)
    if "redraw" in options:
        space = _with(space, redraw=options["redraw"] or None)
    if "share" in options:
        turns = getattr(space, "redraw", None) or (1 if options["share"] < 1 else None)
        space = _with(space, share=options["share"], redraw=turns)
    return space


def _with(space: Any, **changes: Any) -> Any:
    known = [item.name for item in fields(space)]
    for name in changes:
        check_name(name, known, f"option of the subspace {type(space).__name__}")
    return replace(space, **changes)


def _rules(base: Settings, options: Mapping[str, Any], steps: int) -> tuple[Any, ...]:
    made: dict[type[Rule], Rule | None] = {}
    if "reuse" in options:
        made[PlanReuse] = PlanReuse(options["reuse"], ema=0.7) if options["reuse"] > 1 else None
    for name, kind in (("momentum", Momentum), ("weight_momentum", WeightMomentum)):
        if name in options:
            made[kind] = kind(options[name]) if options[name] else None
    if "decay" in options:
        rate = options["decay"]
        check_fraction("decay", rate)
        made[FullDecay] = FullDecay(Cosine(rate, STEP_END * rate, steps)) if rate else None
    rules = [made.pop(type(rule), rule) for rule in base.rules] + list(made.values())
    # Momentum would add up a decay that comes before it.
    return tuple(sorted((r for r in rules if r), key=lambda rule: isinstance(rule, FullDecay)))
