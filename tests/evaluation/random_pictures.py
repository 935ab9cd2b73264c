"""Networks for pictures, drawn at random: convolutions of every geometry, hard values, time."""

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardstep.evaluation import Problem
from hardstep.nn import build

ACTIVATIONS = {
    "step": lambda x: (x > 0.1).to(x.dtype),
    "sign": lambda x: torch.where(x >= 0, 1.0, -1.0).to(x.dtype),
    "round": lambda x: torch.round(x / 0.3) * 0.3,
    "relu": F.relu,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "tanh": torch.tanh,
    "gate": lambda x: x * (x.detach() > 0.2),
}
HARD = ("step", "sign", "round")


class Layer(nn.Module):
    """A convolution, perhaps batch norm, an activation, perhaps pooling, perhaps a branch."""

    def __init__(self, draw: random.Random, channels: int, sizes: list[int]) -> None:
        super().__init__()
        dims = len(sizes)
        self.groups = draw.choice([1, 1, 1, channels])
        out = draw.choice([self.groups, 2 * self.groups]) if self.groups > 1 else draw.randint(1, 5)
        kernel = [draw.randint(1, min(3, size)) for size in sizes]
        options = {
            "kernel_size": tuple(kernel),
            "stride": draw.randint(1, 2),
            "padding": draw.randint(0, 1),
            "dilation": tuple(draw.randint(1, 2 if k < 3 else 1) for k in kernel),
            "groups": self.groups,
            "bias": draw.random() < 0.7,
        }
        self.transform = draw.choice([None, None, "sign", "round"])
        self.convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](channels, out, **options)
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1]
        self.norm = norm(out) if draw.random() < 0.3 else None
        self.activation = draw.choice([*HARD, *ACTIVATIONS])
        self.pool = draw.choice([None, None, "max", "overlap", "mean"]) if dims == 2 else None
        self.residual = draw.choice([None, "add", "cat"])

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.convolution.weight
        if self.transform is not None:
            weight = ACTIVATIONS[self.transform](weight)
        found = self.convolution._conv_forward(inputs, weight, self.convolution.bias)
        found = found if self.norm is None else self.norm(found)
        found = ACTIVATIONS[self.activation](found)
        if self.residual == "add" and found.shape == inputs.shape:
            found = found + inputs
        if self.residual == "cat" and found.shape[2:] == inputs.shape[2:]:
            found = torch.cat([inputs, found], dim=1)
        if self.pool is not None and min(found.shape[2:]) >= 2:
            pools = {
                "max": lambda x: F.max_pool2d(x, 2),
                "overlap": lambda x: F.max_pool2d(x, 2, stride=1),
                "mean": lambda x: F.avg_pool2d(x, 2),
            }
            found = pools[self.pool](found)
        return found


class RandomNetwork(nn.Module):
    """A few layers, perhaps over time, and a readout."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        dims = draw.choice([1, 2, 2, 2, 3])
        self.shape = (draw.randint(1, 3), *[draw.randint(4, 8 if dims < 3 else 5)] * dims)
        self.steps = draw.choice([0, 0, 2, 4])
        self.layers = nn.ModuleList()
        value = torch.zeros(1, *self.shape)
        for _ in range(draw.randint(1, 3)):
            if min(value.shape[2:]) < 2 or value.numel() > 2000:
                break
            try:
                layer = Layer(draw, value.shape[1], list(value.shape[2:])).eval()
                value = layer(value)
            except RuntimeError:  # a kernel that is larger than what it is to read
                continue
            self.layers.append(layer)
        self.ending = draw.choice(["flat", "mean"])
        features = value.flatten(1).shape[1] if self.ending == "flat" else value.shape[1]
        self.readout = nn.Linear(features, 4)

    def _once(self, inputs: Tensor, membranes: list[Tensor | float]) -> Tensor:
        for number, layer in enumerate(self.layers):
            inputs = layer(inputs)
            if self.steps:
                membrane = 0.8 * membranes[number] + inputs
                inputs = (membrane > 0.4).to(inputs.dtype)
                membranes[number] = membrane * (1 - inputs)
        whole = inputs.flatten(1) if self.ending == "flat" else inputs.flatten(2).mean(2)
        return self.readout(whole)

    def forward(self, inputs: Tensor) -> Tensor:
        membranes: list[Tensor | float] = [0.0] * len(self.layers)
        if not self.steps:
            return self._once(inputs, membranes)
        return sum(self._once(inputs, membranes) for _ in range(self.steps))


def draw_problem(seed: int, dtype: torch.dtype = torch.float64) -> Problem:
    """A network with random statistics in its norms, and a batch for it."""
    draw = random.Random(seed)
    model = build(lambda: RandomNetwork(draw), seed).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            drawn = torch.rand(buffer.shape, generator=generator, dtype=dtype)
            buffer.copy_(drawn + 0.5 if name.endswith("var") else drawn - 0.5)
    batch = draw.choice([1, 4, 6])
    inputs = torch.randn(batch, *model.shape, generator=generator, dtype=dtype)
    model.train(batch > 1 and draw.random() < 0.5)  # norms take the statistics of the batch then
    return Problem(model, inputs, torch.arange(batch) % 4, F.cross_entropy)
