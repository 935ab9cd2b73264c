"""Batches as users hand them over: what is not one is refused with what to write instead."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from hardstep.errors import ConfigError, DataError
from hardstep.training.batches import num_batches

WAYS = "pass hardstep.data.Batches(split, 128, seed=0), a DataLoader, or a list such as [(x, y)]"


def check_batches(name: str, batches: object) -> None:
    """Refuse what does not iterate over batches.

    Raises:
        ConfigError: It is a tensor, a pair of them, a data set, a dict, …
        DataError: It is empty.
    """
    pair = isinstance(batches, tuple) and len(batches) == 2 and all(map(_is_array, batches))
    iterable = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    wrong = isinstance(batches, str | Mapping | type) or _is_array(batches)
    if pair or wrong or not iterable:
        seen = "a pair of tensors" if pair else f"a {type(batches).__name__}"
        raise ConfigError(f"fit: {name} must be batches (inputs, target), got {seen}; {WAYS}")
    if num_batches(batches) == 0:
        raise DataError(f"fit: {name} has no batch; {WAYS}")


def check_target(batch: Any, target: Any, function: Callable[..., Any]) -> None:
    """Refuse a batch without a target for a function that cannot do without.

    Raises:
        DataError: As above.
    """
    if target is not None:
        return
    forward = function.forward if isinstance(function, nn.Module) else function
    try:
        inspect.signature(forward).bind(None)
    except TypeError as error:
        raise DataError(
            f"a batch must be a pair (inputs, target), got {_seen(batch)}, which leaves "
            f"{getattr(forward, '__qualname__', repr(forward))} without a target"
        ) from error
    except ValueError:  # a function that has no signature to look at
        return


def check_tensors(inputs: Any, target: Any, error: TypeError) -> None:
    """Say it if arrays may be why a step failed; a model that takes arrays is no failure."""
    parts = [target, *(inputs if isinstance(inputs, tuple | list) else [inputs])]
    if any(isinstance(part, np.ndarray) for part in parts):
        raise DataError(
            f"a batch of numpy arrays did not suit the model or the loss ({error}); make tensors "
            "of them, for instance with torch.from_numpy"
        ) from error


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _seen(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dict of {', '.join(map(str, batch))}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a {type(batch).__name__}"
