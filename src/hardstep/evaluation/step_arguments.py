"""The objective that the arguments of `PolyStep.step` describe, and what is refused among them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hardstep._checks import check_method, list_arguments, show
from hardstep.errors import ConfigError
from hardstep.evaluation.objectives import (
    ClosureObjective,
    Evaluator,
    FunctionObjective,
    ModelObjective,
    Objective,
)
from hardstep.evaluation.problem import LossFunction, Problem


def check_loss_fn(loss_fn: object) -> None:
    """Refuse what cannot be called with an output and a target."""
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ConfigError(f"loss_fn must be a function, got the class {name}; write {name}()")
    if loss_fn is not None and not callable(loss_fn):
        raise ConfigError(
            "loss_fn must be a function of (output, target) such as "
            f"torch.nn.functional.cross_entropy, got {show(loss_fn)}"
        )


def _check_call(loss_fn: LossFunction, target: Any) -> None:
    """Refuse a loss function that does not take what it will be given."""
    given = ("output",) if target is None else ("output", "target")
    names = list_arguments(loss_fn, len(given))
    if names is not None:
        raise ConfigError(
            f"step: loss_fn is called as loss_fn({', '.join(given)}), since "
            f"{'no' if target is None else 'a'} target was given, got a function of "
            f"({', '.join(names)})"
        )


def _check_closure(closure: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with nothing."""
    names = list_arguments(closure, 0)
    if names is not None:
        raise ConfigError(
            f"step: a closure takes no argument, got a function of ({', '.join(names)}); give a "
            "function of stacked tensors as batched=, and a loss function third: "
            "step(inputs, target, loss_fn)"
        )


def _check_batched(function: Any) -> None:
    """Refuse what cannot be called with a dict of stacked tensors."""
    if not callable(function):
        raise ConfigError(
            "step: batched must be a function of stacked tensors {name: (N, *shape)}, got "
            f"{show(function)}"
        )
    names = list_arguments(function, 1)
    if names is not None:
        raise ConfigError(
            "step: batched is called with stacked tensors {name: (N, *shape)}, got a function of "
            f"({', '.join(names)}); give a closure, which takes nothing, as step(closure)"
        )


def make_objective(
    model: nn.Module | None,
    evaluator: Evaluator,
    inputs: Any,
    target: Any,
    loss_fn: LossFunction | None,
    batched: Callable[[dict[str, Tensor]], Any] | None,
    objective: Objective | None,
) -> Objective:
    """The objective that the arguments of `PolyStep.step` describe.

    An evaluator that has workers (it has a method `spread`) evaluates closures, functions and
    objectives, too.

    Raises:
        ConfigError: They describe none, or more than one.
    """
    found = _find_objective(model, evaluator, inputs, target, loss_fn, batched, objective)
    spread = None if isinstance(found, ModelObjective) else getattr(evaluator, "spread", None)
    return found if spread is None else spread(found)


def _find_objective(
    model: nn.Module | None,
    evaluator: Evaluator,
    inputs: Any,
    target: Any,
    loss_fn: LossFunction | None,
    batched: Callable[[dict[str, Tensor]], Any] | None,
    objective: Objective | None,
) -> Objective:
    if loss_fn is not None and not callable(loss_fn) and (callable(inputs) or callable(target)):
        seen = ", ".join(show(part) for part in (inputs, target, loss_fn))
        raise ConfigError(f"step takes (inputs, target, loss_fn) in this order, got ({seen})")
    check_loss_fn(loss_fn)
    batch = any(part is not None for part in (inputs, target, loss_fn))
    given = [batch, batched is not None, objective is not None]
    if sum(given) != 1:
        raise ConfigError(
            "step takes exactly one of (inputs, target, loss_fn), a closure, batched= and "
            f"objective=, got {sum(given)} of them"
        )
    if objective is not None:
        check_method("objective", objective, "losses", "MaxSat(formula), with losses()")
        return objective
    if batched is not None:
        _check_batched(batched)
        return FunctionObjective(batched)
    if callable(inputs) and target is None and loss_fn is None:
        _check_closure(inputs)
        return ClosureObjective(inputs, model)
    if model is None or inputs is None or loss_fn is None:
        raise ConfigError(
            "step(inputs, target, loss_fn) needs a model, inputs and a loss function; for "
            "plain tensors use a closure, batched= or objective="
        )
    _check_call(loss_fn, target)
    return ModelObjective(Problem(model, inputs, target, loss_fn), evaluator)
