"""From what a user hands to `step` to an objective."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hardstep.errors import ConfigError
from hardstep.evaluation.blackbox import ClosureObjective, FunctionObjective
from hardstep.evaluation.objectives import (
    Evaluator,
    LossFunction,
    ModelObjective,
    Objective,
    Problem,
)


def check_loss_fn(loss_fn: object) -> None:
    """Refuse what cannot be called with an output and a target."""
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ConfigError(f"loss_fn must be a function, got the class {name}; write {name}()")
    if loss_fn is not None and not callable(loss_fn):
        raise ConfigError(
            "loss_fn must be a function of (output, target) such as "
            f"torch.nn.functional.cross_entropy, got {loss_fn!r}"
        )


def goal_of(
    model: nn.Module | None,
    evaluator: Evaluator,
    inputs: Any,
    target: Any,
    loss_fn: LossFunction | None,
    batched: Callable[[dict[str, Tensor]], Any] | None,
    objective: Objective | None,
) -> Objective:
    """The objective that the arguments of `PolyStep.step` describe.

    Raises:
        ConfigError: They describe none, or more than one.
    """
    check_loss_fn(loss_fn)
    batch = any(part is not None for part in (inputs, target, loss_fn))
    given = [batch, batched is not None, objective is not None]
    if sum(given) != 1:
        raise ConfigError(
            "step takes exactly one of (inputs, target, loss_fn), a closure, batched= and "
            f"objective=, got {sum(given)} of them"
        )
    if objective is not None:
        return objective
    if batched is not None:
        return FunctionObjective(batched)
    if callable(inputs) and target is None and loss_fn is None:
        return ClosureObjective(inputs, model)
    if model is None or inputs is None or loss_fn is None:
        raise ConfigError(
            "step(inputs, target, loss_fn) needs a model, inputs and a loss function; for "
            "plain tensors use a closure, batched= or objective="
        )
    return ModelObjective(Problem(model, inputs, target, loss_fn), evaluator)
