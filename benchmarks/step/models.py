"""The benchmark networks in plain torch, imported by both workers.

They are the networks of `hardstep.tasks.architectures` at the paper's sizes, with the same
parameters in the same order; our worker checks that the outputs agree. Both sides get this one
file, so that neither runs on a model written for the other. Where the published package documents a
declaration that puts a layer on one of its fast paths, the layer carries it (attributes named
`polystep_…`), and networks are `nn.Sequential` wherever they can be, which it asks for as well.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

INPUTS, HIDDEN, CLASSES = 784, 128, 10


class Spiking(nn.Module):
    """Two layers of leaky integrate-and-fire neurons; the output counts spikes.

    As one writes it down: every time step applies both layers.
    """

    def __init__(self, num_steps: int = 15) -> None:
        super().__init__()
        self.hidden = nn.Linear(INPUTS, HIDDEN)
        self.output = nn.Linear(HIDDEN, CLASSES)
        self.num_steps = num_steps

    def current(self, inputs: Tensor) -> Tensor:
        """What drives the hidden neurons first, (batch, hidden)."""
        return self.hidden(inputs)

    def again(self, inputs: Tensor, first: Tensor) -> Tensor:
        """What drives them at the following time steps."""
        del first
        return self.hidden(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Spike counts (batch, classes)."""
        first = self.current(inputs)
        spikes, membrane = _fire(first)
        counts, output = _fire(self.output(spikes))
        for _ in range(1, self.num_steps):
            spikes, membrane = _fire(0.95 * membrane + self.again(inputs, first))
            fired, output = _fire(0.95 * output + self.output(spikes))
            counts = counts + fired
        return counts


class SpikingOnce(Spiking):
    """The same, with the current that does not change in time computed once, by hand.

    The published package advises it. Ours finds out by itself and takes the same time on both.
    """

    def again(self, inputs: Tensor, first: Tensor) -> Tensor:
        """What drives them at the following time steps."""
        del inputs
        return first


def _fire(membrane: Tensor) -> tuple[Tensor, Tensor]:
    """Spikes, and the membrane after them."""
    spikes = (membrane >= 1.0).to(membrane.dtype)
    return spikes, membrane * (1.0 - spikes)


class Staircase(nn.Module):
    """A sigmoid with five flat steps."""

    polystep_elementwise = True

    def forward(self, inputs: Tensor) -> Tensor:
        """The step each input stands on."""
        return torch.floor(5.0 * torch.sigmoid(inputs)) / 5.0


class QuantizedLinear(nn.Linear):
    """Weights and bias rounded to multiples of 0.01 within eight bits."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        nn.init.normal_(self.weight, std=0.1)
        nn.init.zeros_(self.bias)

    @staticmethod
    def polystep_weight_transform(weight: Tensor) -> Tensor:
        """The nearest representable weight."""
        return torch.clamp(torch.round(weight / 0.01), -128, 127) * 0.01

    polystep_bias_transform = polystep_weight_transform

    def forward(self, inputs: Tensor) -> Tensor:
        """The affine map with the rounded parameters."""
        weight = self.polystep_weight_transform(self.weight)
        return nn.functional.linear(inputs, weight, self.polystep_bias_transform(self.bias))


class ArgmaxAttention(nn.Module):
    """Values gated by the best of eight keys."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(0.5 * torch.randn(8, HIDDEN))
        self.values = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, hidden: Tensor) -> Tensor:
        """The gated values."""
        best = (hidden @ self.keys.T).argmax(dim=-1)
        return self.values(hidden) * torch.sigmoid(self.keys)[best]


class HardMixture(nn.Module):
    """Four experts, one of which answers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
            for _ in range(4)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """The output of the expert with the best score."""
        outputs = torch.stack([expert(hidden) for expert in self.experts], dim=-2)
        chosen = self.gate(hidden).argmax(dim=-1)[..., None, None]
        return torch.take_along_dim(outputs, chosen, dim=-2).squeeze(-2)


def plain() -> nn.Module:
    """784–128–ReLU–10."""
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def quantized() -> nn.Module:
    """An eight-bit layer between two ordinary ones."""
    middle = QuantizedLinear(HIDDEN, HIDDEN)
    first, last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    return nn.Sequential(first, nn.ReLU(), middle, nn.ReLU(), last)


def staircase() -> nn.Module:
    """Three layers with staircase activations."""
    first, middle = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
    return nn.Sequential(first, Staircase(), middle, Staircase(), nn.Linear(HIDDEN, CLASSES))


def attention() -> nn.Module:
    """Argmax attention behind a ReLU layer."""
    first, last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    return nn.Sequential(first, nn.ReLU(), ArgmaxAttention(), last)


def mixture() -> nn.Module:
    """A hard mixture of experts behind a ReLU layer, twenty classes."""
    first, last = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, 2 * CLASSES)
    return nn.Sequential(first, nn.ReLU(), HardMixture(), last)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "snn": Spiking,
    "snn-once": SpikingOnce,
    "mlp": plain,
    "int8": quantized,
    "staircase": staircase,
    "argmax": attention,
    "moe": mixture,
}


def build(name: str, seed: int = 0) -> nn.Module:
    """A network with torch's own initial values, the same in both processes."""
    torch.manual_seed(seed)
    return MODELS[name]()
