"""Models as a function of a seed."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from hardstep.seeds import derive

Model = TypeVar("Model", bound=nn.Module)


def build(factory: Callable[[], Model], seed: int) -> Model:
    """The model the factory makes, as a function of the seed only.

    Built on the CPU, so that the values do not depend on the machine; the global generators are
    left as they were.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(derive(seed, "initial weights"))
        return factory()
