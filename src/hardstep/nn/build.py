"""Models as a function of a seed."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from hardstep._checks import check_factory, list_arguments, show
from hardstep.errors import ConfigError
from hardstep.seeds import derive

Model = TypeVar("Model", bound=nn.Module)


def build(factory: Callable[[], Model], seed: int) -> Model:
    """The model the factory makes, as a function of the seed only.

    Built on the CPU, so that the values do not depend on the machine; the global generators are
    left as they were.

    Raises:
        ConfigError: The factory makes no module; a module itself is none.
    """
    check_factory("build: factory", factory)
    names = list_arguments(factory, 0)
    if names is not None:
        raise ConfigError(
            f"build: factory is called without arguments, got a function of ({', '.join(names)}); "
            "write lambda: and the call with its arguments"
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(derive(seed, "initial weights"))
        model = factory()
    if not isinstance(model, nn.Module):
        raise ConfigError(f"build: factory must return a module, got {show(model)}")
    return model
