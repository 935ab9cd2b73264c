"""Whether a network is alive: the share of its units that are active."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.step.networks import MOST, EightBits, Sign, Spikes

HARD = (Spikes, Sign, EightBits)


def measure(model: nn.Module, pictures: Tensor) -> dict[str, dict[str, float]]:
    """Of every hard activation: shares of its units that are active, and of its values.

    A unit (a neuron, or a channel of a picture) is active if it does not always have the same
    value. Values are zero, or at the end of the range: neither spikes nor signs have a range.
    """
    seen: dict[str, list[Tensor]] = {}
    handles = []
    for name, layer in model.named_modules():
        if isinstance(layer, HARD):
            kept = seen.setdefault(name, [])
            handles.append(layer.register_forward_hook(_keep(kept)))
    with torch.no_grad():
        model(pictures)
    for handle in handles:
        handle.remove()
    layers = dict(model.named_modules())
    return {name: _shares(layers[name], torch.cat(values)) for name, values in seen.items()}


def _keep(kept: list[Tensor]) -> Callable[..., None]:
    def hook(layer: nn.Module, inputs: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)

    return hook


def _shares(layer: nn.Module, values: Tensor) -> dict[str, float]:
    units = values.transpose(0, 1).flatten(1)
    shares = {
        "units": float((units != units[:, :1]).any(dim=1).float().mean()),
        "positive": float((values > 0).float().mean()),
    }
    if isinstance(layer, EightBits):
        shares["saturated"] = float((values.abs() >= MOST * layer.scale).float().mean())
    return shares
