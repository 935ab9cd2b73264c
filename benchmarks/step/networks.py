"""Networks people train, in plain torch: what the second table of `make bench-step` is about.

    spiking     convolutions, max pooling and leaky neurons over time, as in snnTorch's tutorial
    binary      a ResNet with signs of weights and activations, and batch norm
    lenet       LeNet-5 with weights and activations in eight bits
    separable   a depthwise-separable network of the size used for keyword spotting, in eight bits
    recurrent   an LSTM or a GRU of torch's, which reads a picture line by line

Those of tokens are in `token_networks`.

They are written as one writes them, with nothing that would help an evaluator. A network whose
units never change costs an evaluator nothing, so every hard activation is a module, and
`network_activity` watches these.

The scales of eight-bit layers and the statistics of batch norm are fixed on a batch of pictures
before the first step, as one does before `model.eval()`.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.step.token_networks import Attention, Transformer

SIDE, CLASSES = 28, 10
ROOM = 2.0  # how far eight-bit numbers reach beyond the largest of the first network
MOST = 127  # the largest whole number of a layer in eight bits
MOMENTUM = 0.1  # of the statistics of batch norm, torch's default


class Spikes(nn.Module):
    """Leaky neurons: spikes where the membrane reaches 1, which they lose."""

    def forward(self, current: Tensor, membrane: Tensor) -> tuple[Tensor, Tensor]:
        """Spikes, and the membrane after them."""
        membrane = 0.5 * membrane + current
        spikes = (membrane >= 1.0).to(membrane.dtype)
        return spikes, membrane - spikes


class SpikingCnn(nn.Module):
    """Conv 12, conv 64 and a linear layer, each followed by leaky neurons; counts spikes."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.num_steps = num_steps
        self.conv1, self.spikes1 = nn.Conv2d(1, 12, 5), Spikes()
        self.conv2, self.spikes2 = nn.Conv2d(12, 64, 5), Spikes()
        self.linear, self.spikes3 = nn.Linear(64 * 4 * 4, CLASSES), Spikes()
        with torch.no_grad():  # torch's first weights leave the later layers silent
            self.conv2.weight.mul_(3.0)
            self.linear.weight.mul_(4.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Spike counts (batch, classes)."""
        one = two = three = counts = torch.zeros((), dtype=inputs.dtype)
        for _ in range(self.num_steps):
            spikes, one = self.spikes1(F.max_pool2d(self.conv1(inputs), 2), one)
            spikes, two = self.spikes2(F.max_pool2d(self.conv2(spikes), 2), two)
            spikes, three = self.spikes3(self.linear(spikes.flatten(1)), three)
            counts = counts + spikes
        return counts


class Sign(nn.Module):
    """Plus or minus one."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Signs, of zero plus one."""
        return torch.where(inputs >= 0, 1.0, -1.0)


class BinaryConv2d(nn.Conv2d):
    """A convolution with the signs of its weights."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The convolution, without a bias."""
        weight = torch.where(self.weight >= 0, 1.0, -1.0)
        return F.conv2d(inputs, weight, None, self.stride, self.padding)


class BinaryBlock(nn.Module):
    """Two binary convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.sign1, self.sign2 = Sign(), Sign()
        self.conv1 = BinaryConv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = BinaryConv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """What the convolutions add to the inputs."""
        found = self.norm1(self.conv1(self.sign1(inputs)))
        return inputs + self.norm2(self.conv2(self.sign2(found)))


def binary_resnet(num_convolutions: int) -> nn.Sequential:
    """A convolution of the picture, then blocks of two; averages over pixels are classified."""
    blocks = {f"block{n}": BinaryBlock(16) for n in range(1, (num_convolutions + 1) // 2)}
    return _chain(
        stem=nn.Conv2d(1, 16, 3, padding=1),
        norm=nn.BatchNorm2d(16),
        **blocks,
        average=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        readout=nn.Linear(16, CLASSES),
    )


def _chain(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def to_eight_bits(values: Tensor, scale: Tensor) -> Tensor:
    """The nearest of 255 multiples of a scale."""
    return torch.clamp(torch.round(values / scale), -MOST, MOST) * scale


class EightBits(nn.Module):
    """Activations in eight bits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Rounded, and cut off where eight bits end."""
        return to_eight_bits(inputs, self.scale)


class EightBitConv2d(nn.Conv2d):
    """A convolution whose weights have eight bits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _prepare(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """The convolution with rounded weights."""
        return self._conv_forward(inputs, to_eight_bits(self.weight, self.scale), self.bias)


class EightBitLinear(nn.Linear):
    """A linear layer whose weights have eight bits."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        _prepare(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """The affine map with rounded weights."""
        return F.linear(inputs, to_eight_bits(self.weight, self.scale), self.bias)


def _prepare(layer: nn.Conv2d | nn.Linear) -> None:
    """First weights that keep the size of what passes a ReLU, and their scale."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    layer.register_buffer("scale", ROOM * layer.weight.detach().abs().max() / MOST)


def lenet() -> nn.Sequential:
    """LeNet-5 with ReLU and max pooling."""
    return _chain(
        conv1=EightBitConv2d(1, 6, 5, padding=2), **_rounded(1), pool1=nn.MaxPool2d(2),
        conv2=EightBitConv2d(6, 16, 5), **_rounded(2), pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        linear1=EightBitLinear(400, 120), **_rounded(3),
        linear2=EightBitLinear(120, 84), **_rounded(4),
        linear3=EightBitLinear(84, CLASSES),
    )  # fmt: skip


def _rounded(number: int) -> dict[str, nn.Module]:
    return {f"relu{number}": nn.ReLU(), f"bits{number}": EightBits()}


def separable(channels: int = 64, num_blocks: int = 4) -> nn.Sequential:
    """DS-CNN: a convolution, blocks of a depthwise and a pointwise one, an average, a readout.

    Batch norm is in the weights, where it is before such a network is put on a device.
    """
    layers = {"stem": EightBitConv2d(1, channels, (10, 4), stride=2, padding=(4, 1)), **_rounded(0)}
    for n in range(1, num_blocks + 1):
        depthwise = EightBitConv2d(channels, channels, 3, padding=1, groups=channels)
        layers |= {f"depthwise{n}": depthwise, **_rounded(2 * n - 1)}
        layers |= {f"pointwise{n}": EightBitConv2d(channels, channels, 1), **_rounded(2 * n)}
    readout = EightBitLinear(channels, CLASSES)
    return _chain(**layers, average=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), readout=readout)


class Recurrent(nn.Module):
    """A recurrent layer that reads a picture in so many pieces, and a readout of its last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], num_steps: int) -> None:
        super().__init__()
        self.num_steps, self.width = num_steps, SIDE * SIDE // num_steps
        self.recurrent = kind(self.width, 64, batch_first=True)
        self.readout = nn.Linear(64, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores (batch, classes); pixels that do not fill a piece are left out."""
        pixels = inputs.flatten(1)[:, : self.num_steps * self.width]
        outputs, _ = self.recurrent(pixels.reshape(-1, self.num_steps, self.width))
        return self.readout(outputs[:, -1])


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "spiking-10": lambda: SpikingCnn(10),
    "spiking-25": lambda: SpikingCnn(25),
    "binary-5": lambda: binary_resnet(5),
    "binary-9": lambda: binary_resnet(9),
    "lenet": lenet,
    "separable": separable,
    "lstm-28": lambda: Recurrent(nn.LSTM, 28),
    "lstm-96": lambda: Recurrent(nn.LSTM, 96),
    "gru-28": lambda: Recurrent(nn.GRU, 28),
    "gru-96": lambda: Recurrent(nn.GRU, 96),
    "attention-argmax": lambda: Attention(hard=True),
    "attention-softmax": lambda: Attention(hard=False),
    "transformer": Transformer,
}


def build(name: str, inputs: Tensor, seed: int = 0) -> nn.Module:
    """A network with its first weights, in evaluation mode.

    Inputs, such as pictures (n, 1, 28, 28), fix the statistics of batch norm and the scales of
    activations.
    """
    torch.manual_seed(seed)
    model = NETWORKS[name]()
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for layer in norms:
        layer.momentum = None  # an average, here of these pictures only
    handles = [
        layer.register_forward_pre_hook(_fix_scale)
        for layer in model.modules()
        if isinstance(layer, EightBits)
    ]
    with torch.no_grad():
        model.train()(inputs)
    for handle in handles:
        handle.remove()
    for layer in norms:
        layer.momentum = MOMENTUM
    return model.eval()


def _fix_scale(layer: EightBits, inputs: tuple[Tensor]) -> None:
    layer.scale.copy_(ROOM * inputs[0].abs().max() / MOST)
