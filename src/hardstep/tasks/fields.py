"""What the fields of a task have to be, as far as it shows before they are used."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from hardstep.errors import ConfigError
from hardstep.training import Metric

CALLS = {  # what functions are called with
    "data": ("seed",),
    "model": (),
    "settings": ("steps",),
    "loss_fn": ("output", "target"),
    "twin": (),
}


def check_function(task: str, field: str, value: Any) -> None:
    """Refuse what is not a function, or not of what it will be called with.

    Raises:
        ConfigError: With how it is called and what was seen.
    """
    kind = type(value).__name__
    if not callable(value):
        raise ConfigError(f"Task {task}: {field} must be a function, got {kind}")
    if not CALLS[field] and isinstance(value, nn.Module):
        raise ConfigError(
            f"Task {task}: {field} must be a function that returns a new module, got a module "
            f"({kind}); put lambda: before it, or give its class"
        )
    names = _names(value, len(CALLS[field]))
    if names is not None:
        raise ConfigError(
            f"Task {task}: {field} is called as {field}({', '.join(CALLS[field])}), got a function "
            f"of ({', '.join(names)})"
        )


def _names(function: Callable[..., Any], num: int) -> list[str] | None:
    """Its arguments, if it cannot be called with so many; None if it can, or does not say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return None
    try:
        signature.bind(*range(num))
    except TypeError:
        return list(signature.parameters)
    return None


def check_metric(task: str, value: Any) -> None:
    """Refuse what is not a metric: a bare function does not say which way is better."""
    if not isinstance(value, Metric):
        raise ConfigError(
            f"Task {task}: metric must be a hardstep.training.Metric, got {type(value).__name__}; "
            'write Metric("name", function, higher_is_better=True), or False'
        )
