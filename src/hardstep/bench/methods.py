"""Every method by name, built for a task, a budget of steps and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import nn

from hardstep import nn as hard
from hardstep.errors import ConfigError
from hardstep.optim import PolyStep
from hardstep.optim.trainable import Trainable
from hardstep.rivals import AdamTwin, CmaEs, Eggroll, InSubspace, MeZo, OpenAiEs, RandomSearch, Spsa
from hardstep.schedules import Cosine, Length
from hardstep.subspaces import RowWise
from hardstep.tasks import Task

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What an optimizer is built from."""

    task: Task
    model: nn.Module
    steps: int  # that schedules span
    seed: int


Build = Callable[[Plan, Options], Trainable]


def _polystep(plan: Plan, options: Options) -> Trainable:
    settings = plan.task.settings(plan.steps)
    changes: dict[str, Any] = {k: v for k, v in options.items() if k == "temperature"}
    if "step_radius" in options:
        start = options["step_radius"]
        changes["step_radius"] = Length(Cosine(start, 0.03 * start, plan.steps))
    if "probe_radius" in options:
        changes["probe_radius"] = Length(options["probe_radius"])
    return PolyStep(plan.model, settings.changed(**changes), seed=plan.seed)


def _in_subspace(method: Callable[..., Any], plan: Plan, options: Options) -> Trainable:
    subspace = plan.task.settings(plan.steps).subspace
    if isinstance(subspace, RowWise):  # a redraw would make the method forget what it has learned
        subspace = replace(subspace, redraw=None)
    factory = partial(method, **options)
    return InSubspace(plan.model, factory, subspace=subspace, seed=plan.seed)


def _searching(kind: Callable[..., Trainable], plan: Plan, options: Options) -> Trainable:
    subspace = plan.task.settings(plan.steps).subspace
    return kind(plan.model, subspace=subspace, seed=plan.seed, **options)


def _eggroll(plan: Plan, options: Options) -> Trainable:
    return Eggroll(plan.model, seed=plan.seed, **options)


def _adam(plan: Plan, options: Options) -> Trainable:
    if plan.task.twin is None:
        raise ConfigError(f"adam needs the smooth twin of a task, and {plan.task.name} has none")
    twin = hard.build(plan.task.twin, plan.seed)
    return AdamTwin(plan.model, twin, seed=plan.seed, **options)


METHODS: dict[str, Build] = {
    "polystep": _polystep,
    "openai-es": partial(_in_subspace, OpenAiEs),
    "cma-es": partial(_in_subspace, CmaEs),
    "eggroll": _eggroll,
    "mezo": partial(_searching, MeZo),
    "spsa": partial(_searching, Spsa),
    "random": partial(_searching, RandomSearch),
    "adam": _adam,
}
KNOWN_OPTIONS = {  # what may be set, and tuned
    "polystep": ("temperature", "step_radius", "probe_radius"),
    "openai-es": ("sigma", "learning_rate", "population"),
    "cma-es": ("sigma", "population"),
    "eggroll": ("sigma", "learning_rate", "rank", "population"),
    "mezo": ("learning_rate", "mu"),
    "spsa": ("a", "c", "stability"),
    "random": ("sigma", "population"),
    "adam": ("learning_rate",),
}


def build(name: str, plan: Plan, options: Options) -> Trainable:
    """The optimizer of that name.

    Raises:
        ConfigError: There is no such method or option; the nearest name is suggested.
    """
    check(name, METHODS, "method")
    for option in options:
        check(option, KNOWN_OPTIONS[name], f"option of {name}")
    return METHODS[name](plan, options)


def check(name: str, known: Mapping[str, Any] | tuple[str, ...], what: str) -> None:
    """Refuse a name that does not exist, with the nearest one that does."""
    if name in known:
        return
    near = get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}"
    raise ConfigError(f"no {what} is called {name!r}; {hint}")
