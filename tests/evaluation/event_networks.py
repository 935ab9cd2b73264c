"""Small networks with convolutions: hard values, time, branches, every geometry."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sign(values: Tensor) -> Tensor:
    """Plus or minus one."""
    return torch.where(values >= 0, 1.0, -1.0).to(values.dtype)


def quantize(values: Tensor, step: float = 0.05) -> Tensor:
    """Multiples of a step."""
    return torch.round(torch.clamp(values / step, -127, 127)) * step


class SpikingCnn(nn.Module):
    """Two convolutions, each behind pooling and leaky neurons, over time."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.first, self.second = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 5, 2)
        self.readout = nn.Linear(20, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        one = two = three = count = torch.zeros((), dtype=inputs.dtype)
        for _ in range(self.steps):
            one = 0.9 * one + F.max_pool2d(2 * self.first(inputs), 2)
            spikes = (one >= 0.5).to(inputs.dtype)
            one = one * (1 - spikes)
            two = 0.8 * two + F.max_pool2d(3 * self.second(spikes), 1)
            spikes = (two >= 0.3).to(inputs.dtype)
            two = two - 0.3 * spikes
            three = 0.9 * three + self.readout(spikes.flatten(1))
            spikes = (three >= 0.2).to(inputs.dtype)
            three = three * (1 - spikes)
            count = count + spikes + 0.1 * three
        return count


class RecurrentSpikes(nn.Module):
    """Spikes that come back through a convolution of their own, one time step later."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.back = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.readout = nn.Linear(3, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        membrane = torch.zeros((), dtype=inputs.dtype)
        spikes = torch.zeros(len(inputs), 3, *inputs.shape[2:], dtype=inputs.dtype)
        record = []
        for _ in range(3):
            membrane = 0.7 * membrane + self.inputs(inputs) + self.back(spikes)
            spikes = (membrane > 0.2).to(inputs.dtype)
            membrane = torch.where(spikes > 0, torch.zeros_like(membrane), membrane)
            record.append(spikes.mean((2, 3)))
        return self.readout(torch.stack(record).sum(0))


class BinaryBlock(nn.Module):
    """Signs of weights and activations, batch norm, a residual."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(channels, channels, 3, 3))
        self.norm, self.stride = nn.BatchNorm2d(channels), stride

    def forward(self, inputs: Tensor) -> Tensor:
        found = F.conv2d(sign(inputs), sign(self.weight), stride=self.stride, padding=1)
        return inputs[:, :, :: self.stride, :: self.stride] + self.norm(found)


class BinaryResNet(nn.Module):
    """A stem and two blocks, averaged over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.one, self.two = BinaryBlock(4), BinaryBlock(4, stride=2)
        self.readout = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.readout(sign(self.two(self.one(self.stem(inputs)))).mean((2, 3)))


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with rounded weights and activations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1, stride=2)
        self.depth, self.point = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 6, 1)
        self.depth_two = nn.Conv2d(6, 12, 3, padding=1, groups=6)
        self.readout = nn.Linear(12, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in (self.stem, self.depth, self.point, self.depth_two):
            weight = quantize(layer.weight, 0.02)
            args = (layer.stride, layer.padding, layer.dilation, layer.groups)
            inputs = quantize(F.relu(F.conv2d(inputs, weight, layer.bias, *args)))
        return self.readout(F.adaptive_avg_pool2d(inputs, 1).flatten(1))


class Branches(nn.Module):
    """Two convolutions side by side, concatenated, with a gate per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.wide = nn.Conv2d(4, 3, 3, padding=2, dilation=2)
        self.narrow = nn.Conv2d(4, 2, 1)
        self.gate = nn.Linear(4, 5)
        self.readout = nn.Linear(5 * 9, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = quantize(torch.tanh(self.stem(inputs)), 0.2)
        gate = torch.sigmoid(self.gate(found.mean((2, 3))))
        both = torch.cat([self.wide(found), self.narrow(found)], dim=1)
        both = F.pad(both, (1, 0, 0, 1)) * gate[:, :, None, None]
        return self.readout(F.avg_pool2d(quantize(both, 0.1), 2).flatten(1))


class Upwards(nn.Module):
    """A transposed convolution, and pooling whose windows overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 3, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1)
        self.last = nn.Conv2d(2, 3, 3)
        self.readout = nn.Linear(12, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = quantize(F.relu(self.up(sign(self.down(inputs)))))
        return self.readout(F.max_pool2d(self.last(found), 3, stride=2, padding=1).flatten(1))


class InPlace(nn.Module):
    """Writes into what convolutions return."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 2)
        self.readout = nn.Linear(27, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.first(inputs)
        found.sub_(0.1).clamp_(min=0)
        found = self.second((found > 0.05).to(inputs.dtype))
        found += 0.5
        found.mul_(2).sign_()
        return self.readout(found.flatten(1))


class Shared(nn.Module):
    """One weight for a convolution and for its transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, 3, 3) / 3)
        self.readout = nn.Linear(2, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = sign(F.conv2d(inputs, self.weight, padding=1))
        return self.readout(F.conv_transpose2d(found, self.weight, padding=1).mean((2, 3)))


class ReadsItself(nn.Module):
    """The weight of a convolution is also read as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3)
        self.readout = nn.Linear(3, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = sign(self.first(inputs)) * self.first.weight.abs().mean()
        return self.readout(found.mean((2, 3)))


class Infinite(nn.Module):
    """Minus infinity where nothing fires, which a candidate may end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 3, 2)
        self.readout = nn.Linear(3, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found = torch.log((self.first(inputs) > -0.3).to(inputs.dtype))
        fired = (self.second(found) > 0).to(inputs.dtype)
        return self.readout(fired.mean((2, 3)))


def _sequence(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


class Step(nn.Module):
    """A threshold."""

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs > 0.1).to(inputs.dtype)


PICTURE = (1, 6, 6)
# How to make a network, the shape of an example, and parameters that must be followed as events.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "spiking": (SpikingCnn, (1, 8, 8), "first.weight second.weight"),
    "recurrent-spikes": (RecurrentSpikes, (2, 4, 4), "inputs.weight"),
    "binary": (
        BinaryResNet,
        PICTURE,
        "stem.weight one.weight one.norm.weight one.norm.bias two.weight two.norm.bias",
    ),
    "separable": (Separable, PICTURE, "stem.weight depth.weight point.weight depth_two.weight"),
    "branches": (Branches, (2, 5, 5), "stem.weight wide.weight narrow.weight"),
    "upwards": (Upwards, PICTURE, "down.weight"),
    "in-place": (InPlace, PICTURE, "first.weight second.weight"),
    "shared": (Shared, (2, 5, 5), ""),
    "reads-itself": (ReadsItself, PICTURE, ""),
    "infinite": (Infinite, PICTURE, ""),
    "one-dimensional": (
        lambda: _sequence(
            nn.Conv1d(2, 3, 3, stride=2, padding=1), Step(), nn.Conv1d(3, 4, 2, dilation=2),
            Step(), nn.Flatten(), nn.Linear(8, 4),
        ),
        (2, 8),
        "0.weight 2.weight",
    ),
    "three-dimensional": (
        lambda: _sequence(
            nn.Conv3d(1, 2, 2), Step(), nn.Conv3d(2, 3, (2, 1, 2), groups=1), Step(),
            nn.Flatten(), nn.Linear(36, 4),
        ),
        (1, 4, 4, 4),
        "0.weight 2.weight",
    ),
    "grouped": (
        lambda: _sequence(
            nn.Conv2d(1, 4, 3), Step(), nn.Conv2d(4, 32, 2, groups=2), Step(),
            nn.Conv2d(32, 4, 2, groups=4), Step(), nn.Flatten(), nn.Linear(16, 4),
        ),
        PICTURE,
        "0.weight 2.weight 4.weight",
    ),
    "wide": (
        lambda: _sequence(
            nn.Conv2d(1, 3, 3), Step(), nn.Conv2d(3, 40, 2), Step(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(40, 20), Step(), nn.Linear(20, 4),
        ),
        PICTURE,
        "0.weight 2.weight",
    ),
    "smooth": (
        lambda: _sequence(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Conv2d(2, 3, 2), nn.Sigmoid(),
                          nn.Flatten(), nn.Linear(27, 4)),
        PICTURE,
        "",
    ),
}  # fmt: skip
