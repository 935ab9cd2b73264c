"""Forward passes that leave no trace: modes, buffers, attributes, the global generators."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def _devices(model: nn.Module) -> list[torch.device]:
    """The accelerators a model's tensors live on."""
    tensors = [*model.parameters(), *model.buffers()]
    return sorted({t.device for t in tensors if t.device.type == "cuda"}, key=str)


def reseed(seed: int) -> None:
    """Give the next forward pass the random numbers of `seed` (dropout, noise)."""
    torch.manual_seed(seed)


@contextmanager
def isolated(model: nn.Module) -> Iterator[None]:
    """Restore attributes of every submodule (modes and hidden state included) and the RNG."""
    kept = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    with torch.random.fork_rng(devices=_devices(model)):
        try:
            yield
        finally:
            for module, attributes, buffers in kept:
                module.__dict__.clear()
                module.__dict__.update(attributes)
                module._buffers.clear()
                module._buffers.update(buffers)
