"""The benchmark architectures, each with its smooth twin, and tasks made of them on flat images.

    spiking_mlp    in -LIF- hidden -LIF- classes, spike counts over 15 steps
    mlp            in - hidden -ReLU- classes
    int8_mlp       in - hidden -ReLU- [INT8 hidden] -ReLU- classes
    binary_mlp     the same with one-bit weights in the middle; ternary_mlp likewise
    staircase_mlp  in - hidden -staircase- hidden -staircase- classes
    argmax_net     in - hidden -ReLU- argmax attention - classes
    moe_net        in - hidden -ReLU- hard mixture of experts - classes
    spiking_cnn    conv 12 - pool -LIF- conv hidden - pool -LIF- classes -LIF-, counts over 10 steps
    binary_cnn     conv 16 -sign- conv 32 -sign- conv hidden -sign- classes, of one-bit weights but
                   for the last layer

Inputs are flat (batch, inputs), outputs are scores (batch, classes). Defaults are the paper's
sizes. A model and its twin have the same parameter names, shapes and initial values.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from hardstep.data import DataSet
from hardstep.errors import ConfigError
from hardstep.nn import (
    LIF,
    ArgmaxAttention,
    Binary,
    HardMoE,
    Quantize,
    Relaxed,
    Scale,
    Sign,
    SmoothLIF,
    SoftmaxAttention,
    SoftMoE,
    SpikingMLP,
    SpikingNet,
    Staircase,
    Ternary,
    TransformedConv2d,
    TransformedLinear,
    WeightTransform,
)
from hardstep.optim import Settings
from hardstep.tasks.task import Task

LARGE = 16  # pictures of that many rows have larger kernels


def spiking_mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> SpikingMLP:
    """A two-layer spiking network; the twin's slope is the default of `SmoothLIF`."""
    return SpikingMLP((inputs, hidden, classes), lif=SmoothLIF() if smooth else LIF())


def mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """A plain two-layer network: the control without a hard part, and its own smooth twin."""
    del smooth  # taken so that every architecture is called alike
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def quantized_mlp(
    inputs: int, hidden: int, classes: int, transform: WeightTransform
) -> nn.Sequential:
    """Three layers, the middle one through the transform; its bias too where it covers it."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        TransformedLinear(hidden, hidden, transform=transform),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def int8_mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """An eight-bit middle layer; smooth leaves its weights unrounded."""
    hard = Quantize()
    return quantized_mlp(inputs, hidden, classes, Relaxed(hard) if smooth else hard)


def binary_mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """A one-bit middle layer; smooth leaves its weights as they are."""
    hard = Binary()
    return quantized_mlp(inputs, hidden, classes, Relaxed(hard) if smooth else hard)


def ternary_mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """A middle layer of minus one, zero and one; smooth leaves its weights as they are."""
    hard = Ternary()
    return quantized_mlp(inputs, hidden, classes, Relaxed(hard) if smooth else hard)


def staircase_mlp(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """Three layers with five-step activations; smooth uses the sigmoid."""
    activation = nn.Sigmoid if smooth else Staircase
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        activation(),
        nn.Linear(hidden, hidden),
        activation(),
        nn.Linear(hidden, classes),
    )


def argmax_net(
    inputs: int = 784, hidden: int = 128, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """Attention to the best of eight keys; smooth weights them by softmax."""
    attention = SoftmaxAttention if smooth else ArgmaxAttention
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), attention(hidden), nn.Linear(hidden, classes)
    )


def moe_net(
    inputs: int = 784, hidden: int = 128, classes: int = 20, smooth: bool = False
) -> nn.Sequential:
    """Four experts, one of which answers; smooth averages them."""
    mixture = SoftMoE if smooth else HardMoE
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), mixture(hidden), nn.Linear(hidden, classes)
    )


def spiking_cnn(
    inputs: int = 784, hidden: int = 64, classes: int = 10, smooth: bool = False
) -> SpikingNet:
    """Two convolutions with pooling and a linear layer, a neuron after each; square pictures."""
    side = _side(inputs)
    kernel, padding = (5, 0) if side >= LARGE else (3, 1)
    after = ((side - kernel + 1 + 2 * padding) // 2 - kernel + 1 + 2 * padding) // 2
    stages = [
        nn.Sequential(
            nn.Unflatten(1, (1, side, side)),
            nn.Conv2d(1, 12, kernel, padding=padding),
            nn.MaxPool2d(2),
        ),
        nn.Sequential(nn.Conv2d(12, hidden, kernel, padding=padding), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(hidden * after**2, classes)),
    ]
    return SpikingNet(stages, num_steps=10, lif=SmoothLIF() if smooth else LIF())


def binary_cnn(
    inputs: int = 784, hidden: int = 64, classes: int = 10, smooth: bool = False
) -> nn.Sequential:
    """Three convolutions of signs with signs between; smooth leaves the weights as they are.

    A bias for every channel is all that stands between sums of signs and the next sign: it is the
    channel's threshold, as batch norm's would be when training is over. Pictures shrink by strides:
    maxima would turn most signs to +1.
    """
    side = _side(inputs)
    kernel, stride = (5, 2) if side >= LARGE else (3, 1)
    activation = nn.Hardtanh if smooth else Sign
    after = -(-side // (4 * stride))
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        _binary_convolution(1, 16, kernel, stride, smooth),
        activation(),
        _binary_convolution(16, 32, 3, 2, smooth),
        activation(),
        _binary_convolution(32, hidden, 3, 2, smooth),
        activation(),
        nn.Flatten(),
        nn.Linear(hidden * after**2, classes),
        Scale(0.125),
    )


def _binary_convolution(
    before: int, channels: int, kernel: int, stride: int, smooth: bool
) -> TransformedConv2d:
    """Sums of signs of order one, exact: the scale is the power of two next to the usual one."""
    hard = Binary(2.0 ** -round(math.log2(before * kernel**2) / 2))
    transform = Relaxed(hard) if smooth else hard
    return TransformedConv2d(before, channels, kernel, stride, kernel // 2, transform=transform)


def _side(pixels: int) -> int:
    side = math.isqrt(pixels)
    if side**2 != pixels:
        raise ConfigError(f"a convolution needs square pictures, got {pixels} pixels")
    return side


@dataclass(frozen=True)
class Images:
    """What an architecture needs to know of its data; nothing is read before `load` is called."""

    load: Callable[[int], DataSet]
    name: str  # on the command line
    contents: str
    pixels: int
    classes: int


@dataclass(frozen=True)
class _Architecture:
    """A model of (pixels, hidden, classes), and its title as a format of these."""

    build: Callable[..., nn.Module]
    title: str


_ARCHITECTURES = {
    "snn": _Architecture(
        spiking_mlp,
        "spiking network, {pixels}–{hidden}–{classes} LIF units, 15 time steps",
    ),
    "mlp": _Architecture(mlp, "ReLU network {pixels}–{hidden}–{classes}"),
    "int8": _Architecture(
        int8_mlp, "{pixels}–{hidden}–{hidden}–{classes} with an INT8 middle layer"
    ),
    "binary": _Architecture(
        binary_mlp, "{pixels}–{hidden}–{hidden}–{classes} with a middle layer of signs"
    ),
    "ternary": _Architecture(
        ternary_mlp,
        "{pixels}–{hidden}–{hidden}–{classes} with a middle layer of −1, 0 and 1",
    ),
    "staircase": _Architecture(
        staircase_mlp,
        "{pixels}–{hidden}–{hidden}–{classes} with five-level staircase activations",
    ),
    "argmax": _Architecture(argmax_net, "argmax attention over eight keys"),
    "moe": _Architecture(moe_net, "top-1 mixture of four experts"),
    "csnn": _Architecture(
        spiking_cnn, "spiking CNN, convolutions of 12 and {hidden} channels, 10 time steps"
    ),
    "bcnn": _Architecture(
        binary_cnn, "binary CNN, three convolutions of signs with up to {hidden} channels"
    ),
}


def image_task(
    name: str,
    images: Images,
    hidden: int,
    settings: Callable[[int], Settings],
    steps: int,
    batch_size: int,
) -> Task:
    """The architecture of that name on these images."""
    architecture = _ARCHITECTURES[name]
    title = architecture.title.format(pixels=images.pixels, hidden=hidden, classes=images.classes)
    return Task(
        name=name,
        title=f"{title}, {images.contents}",
        data=images.load,
        model=partial(architecture.build, images.pixels, hidden, images.classes),
        settings=settings,
        steps=steps,
        batch_size=batch_size,
        twin=partial(architecture.build, images.pixels, hidden, images.classes, smooth=True),
        data_name=images.name,
    )
