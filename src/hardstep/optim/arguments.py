"""Arguments of a step that are of another kind, refused before anything is computed."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hardstep.errors import ConfigError, ObjectiveError


def check_loss_fn(loss_fn: object) -> None:
    """Refuse what cannot be called with an output and a target."""
    if loss_fn is None:
        return
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ConfigError(f"loss_fn must be a function, got the class {name}; write {name}()")
    if not callable(loss_fn):
        raise ConfigError(
            "loss_fn must be a function of (output, target) such as "
            f"torch.nn.functional.cross_entropy, got {loss_fn!r}"
        )


def check_evaluator(evaluator: object) -> None:
    """Refuse what does not compute losses; a class does not, its objects do."""
    if isinstance(evaluator, type) or not callable(getattr(evaluator, "losses", None)):
        raise ConfigError(f"evaluator must be an object like Incremental(), got {evaluator!r}")


def check_some_loss(losses: Tensor, inputs: Any) -> None:
    """Refuse a batch without examples, if its losses are as empty as it is."""
    empty = [tuple(t.shape) for t in _tensors(inputs) if t.dim() and not t.numel()]
    if empty and not losses.isfinite().any():
        raise ObjectiveError(f"step: the batch is empty, its inputs have shape {empty[0]}")


def _tensors(inputs: Any) -> list[Tensor]:
    if isinstance(inputs, Mapping):
        inputs = list(inputs.values())
    several = inputs if isinstance(inputs, tuple | list) else [inputs]
    return [part for part in several if isinstance(part, Tensor)]
