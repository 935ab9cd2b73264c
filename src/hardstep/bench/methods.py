"""Every method by name, built for a task, a budget of steps and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from hardstep import nn as hard
from hardstep._checks import check_count, check_name, check_not_negative, check_positive
from hardstep.baselines import (
    AdamTwin,
    CmaEs,
    Eggroll,
    InSubspace,
    MeZo,
    OpenAiEs,
    RandomSearch,
    Spsa,
)
from hardstep.bench import options as polystep_options
from hardstep.bench.axes import PLAYED, Budget
from hardstep.errors import ConfigError
from hardstep.optim import PolyStep
from hardstep.schedules import Cosine, Schedule
from hardstep.subspaces import Full, PerTensor, RowWise, Sketch, Subspace
from hardstep.tasks import Task
from hardstep.training import Trainable

Options = Mapping[str, Any]
POPULATION = 32  # of population methods unless they choose; one generation is one step


@dataclass(frozen=True)
class Blueprint:
    """What an optimizer is built from."""

    task: Task
    model: nn.Module
    steps: int  # that schedules span
    seed: int
    interactions: float | None = None  # that they span instead, if these are what the run may spend

    def clock(self, step: int) -> int:
        """The step that schedules are at after so many steps: the share of the budget counts."""
        if self.interactions is None:
            return step
        spent = float(self.model.interactions)  # type: ignore[arg-type]
        return int(self.steps * min(spent / self.interactions, 1.0))

    def anneal(self, start: float, end: float) -> Schedule:
        """A rate that falls over the run."""
        falling = Cosine(start, end, self.steps)
        return falling if self.interactions is None else lambda step: falling(self.clock(step))

    @property
    def subspace(self) -> Subspace:
        """Where every method searches.

        Without redraws: coordinates would change their meaning, and a method that remembers its
        steps would forget what it has learned.
        """
        subspace = self.task.settings(self.steps).subspace
        if isinstance(subspace, Sketch):  # what it draws its directions in
            subspace = subspace.of
        if isinstance(subspace, PerTensor):  # with turns it reaches everything, in time
            return Full()
        return (
            replace(subspace, redraw=None, share=1.0) if isinstance(subspace, RowWise) else subspace
        )


Build = Callable[[Blueprint, Options], Trainable]
TwinOf = Callable[[Task, int], nn.Module]


def _polystep(blueprint: Blueprint, options: Options) -> Trainable:
    def usual_dim() -> int:
        return PolyStep(blueprint.model, blueprint.task.settings(blueprint.steps)).subspace.dim

    settings = polystep_options.make_settings(blueprint.task, blueprint.steps, options, usual_dim)
    return PolyStep(blueprint.model, settings, clock=blueprint.clock, seed=blueprint.seed)


def _anneal(blueprint: Blueprint, options: Options) -> dict[str, Any]:
    """Options in which a rate with an end is a schedule; without one it stays, as published."""
    given = dict(options)
    if "learning_rate_end" in given:
        given["learning_rate"] = blueprint.anneal(
            given["learning_rate"], given.pop("learning_rate_end")
        )
    return given


def _in_subspace(method: Callable[..., Any], blueprint: Blueprint, options: Options) -> Trainable:
    factory = partial(method, **{"population": POPULATION, **_anneal(blueprint, options)})
    return InSubspace(blueprint.model, factory, subspace=blueprint.subspace, seed=blueprint.seed)


def _searching(kind: Callable[..., Trainable], blueprint: Blueprint, options: Options) -> Trainable:
    given = _anneal(blueprint, options)
    return kind(blueprint.model, subspace=blueprint.subspace, seed=blueprint.seed, **given)


def _random(blueprint: Blueprint, options: Options) -> Trainable:
    size = options.get("population", POPULATION)
    check_count("random: population", size, 2)
    members = {**options, "population": size - 1}  # the weights as they are is one more
    return _searching(RandomSearch, blueprint, members)


def _eggroll(blueprint: Blueprint, options: Options) -> Trainable:
    given = _anneal(blueprint, options)
    return Eggroll(blueprint.model, seed=blueprint.seed, **{"population": POPULATION, **given})


def _adam(twin_of: TwinOf, blueprint: Blueprint, options: Options) -> Trainable:
    twin = twin_of(blueprint.task, blueprint.seed)
    given = dict(options)
    if "slope" in given:
        _set_slope(blueprint.task, twin, given.pop("slope"))
    rate = given.pop("learning_rate", 1e-3)
    annealed = blueprint.anneal(rate, 0.0)
    return AdamTwin(blueprint.model, twin, learning_rate=annealed, seed=blueprint.seed)


def _set_slope(task: Task, twin: nn.Module, slope: float) -> None:
    sloped = _sloped(twin)
    if not sloped:
        raise ConfigError(
            f"adam: slope is of the spikes of a twin, and {task.name} has none, got {slope}; "
            "leave it out"
        )
    for module in sloped:
        module.slope = slope


def twin_of(task: Task, seed: int) -> nn.Module:
    """A task's smooth twin.

    Raises:
        ConfigError: It has none.
    """
    if task.twin is None:
        raise ConfigError(f"adam needs the smooth twin of a task, and {task.name} has none")
    return hard.build(task.twin, seed)


def surrogate_of(task: Task, seed: int) -> nn.Module:
    """A task's hard model with surrogate gradients."""
    return hard.with_surrogates(hard.build(task.model, seed))


def _sloped(twin: nn.Module) -> list[Any]:
    return [module for module in twin.modules() if isinstance(module, hard.SmoothLIF)]


def has_slope(task: Task) -> bool:
    """Whether the twin has a surrogate slope to tune."""
    return task.twin is not None and bool(_sloped(twin_of(task, 0)))


METHODS: dict[str, Build] = {
    "polystep": _polystep,
    "openai-es": partial(_in_subspace, OpenAiEs),
    "cma-es": partial(_in_subspace, CmaEs),
    "eggroll": _eggroll,
    "mezo": partial(_searching, MeZo),
    "spsa": partial(_searching, Spsa),
    "random": _random,
    "adam": partial(_adam, twin_of),
    "adam-hard": partial(_adam, surrogate_of),
}
WITH_GRADIENTS = ("adam", "adam-hard")
KNOWN_OPTIONS = {  # what may be set, and tuned
    "polystep": polystep_options.NUMBERS + polystep_options.WORDS,
    "openai-es": ("sigma", "learning_rate", "learning_rate_end", "population"),
    "cma-es": ("sigma", "population"),
    "eggroll": ("sigma", "learning_rate", "learning_rate_end", "rank", "population"),
    "mezo": ("learning_rate", "learning_rate_end", "mu"),
    "spsa": ("a", "c", "stability"),
    "random": ("sigma", "population"),
    "adam": ("learning_rate", "slope"),
    "adam-hard": ("learning_rate", "slope"),
}
WHOLE = {  # options that are whole numbers, and the least of each
    "rank": 1,
    "redraw": 0,
    "particle_dim": 1,
    "num_probes": 1,
    "reuse": 1,
    "population": 1,
}
MAY_BE_0 = (
    "step_decay",
    "momentum",
    "weight_momentum",
    "decay",
    "column_penalty",
    "stability",
    "learning_rate_end",
)  # other numbers are > 0


def build(name: str, blueprint: Blueprint, options: Options) -> Trainable:
    """The optimizer of that name.

    Raises:
        ConfigError: There is no such method or option, and the nearest name is suggested; or the
            value of an option is none.
    """
    check_options(name, options)
    return METHODS[name](blueprint, options)


def usual_options(task: Task, method: str, budget: Budget) -> dict[str, Any]:
    """What a method begins with where nothing is tuned.

    At equal evaluations the price of a step is free. PolyStep's own may be so expensive that a
    budget is over after a few of them; with fewer evaluations than its own steps would take, its
    units take turns instead (`presets.frugal`).
    """
    if method != "polystep" or budget.axis != "evals":
        return {}
    blueprint = Blueprint(task, hard.build(task.model, seed=0), task.steps, seed=0)
    own = task.steps * build(method, blueprint, {}).evaluations_per_step
    return {"preset": "frugal"} if budget.amount < own else {}


def check_method(task: Task, method: str, options: Options) -> None:
    """Refuse now what a run of these options would be refused for.

    The method is built, but for a model of one weight: to lay a subspace into a large one may take
    minutes. Adam needs the task's own model, which its twin has to fit.

    Raises:
        ConfigError: As `build` and the method say it.
    """
    model = hard.build(task.model, 0) if method in WITH_GRADIENTS else nn.Linear(1, 1)
    build(method, Blueprint(task, model, task.steps, 0), options)


def check_axis(task: Task, axis: str) -> None:
    """Refuse to match runs by interactions where a task has none.

    Raises:
        ConfigError: Its model plays no environment.
    """
    if axis == PLAYED and not hasattr(hard.build(task.model, 0), PLAYED):
        raise ConfigError(
            f"{task.name} plays no environment, so its runs cannot be matched by interactions; "
            "match steps, evals or time"
        )


def check_options(method: str, options: Options) -> None:
    """Refuse a method, option or value that does not exist, with the nearest name that does."""
    check_name(method, METHODS, "method")
    for option, value in options.items():
        check_name(option, KNOWN_OPTIONS[method], f"option of {method}")
        _check_value(method, option, value)
    if "learning_rate_end" in options and "learning_rate" not in options:
        raise ConfigError(
            f"{method}: learning_rate_end needs the learning_rate it starts from, got "
            f"{options['learning_rate_end']} alone"
        )


def _check_value(method: str, option: str, value: object) -> None:
    if option in polystep_options.WORDS:
        if not isinstance(value, str):
            raise ConfigError(f"{method}: {option} must be a word in quotes, got {value!r}")
    elif option in WHOLE:
        check_count(f"{method}: {option}", value, WHOLE[option])
    elif option in MAY_BE_0:
        check_not_negative(f"{method}: {option}", value)
    else:
        check_positive(f"{method}: {option}", value)
