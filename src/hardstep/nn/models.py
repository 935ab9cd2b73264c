"""The benchmark architectures, each with its smooth twin, at any width.

    spiking_mlp    in -LIF- hidden -LIF- classes, spike counts over 15 steps
    mlp            in - hidden -ReLU- classes
    int8_mlp       in - hidden -ReLU- [INT8 hidden] -ReLU- classes
    binary_mlp     the same with one-bit weights in the middle; ternary_mlp likewise
    staircase_mlp  in - hidden -staircase- hidden -staircase- classes
    argmax_net     in - hidden -ReLU- argmax attention - classes
    moe_net        in - hidden -ReLU- hard mixture of experts - classes

Inputs are flat (batch, inputs), outputs are scores (batch, classes). Defaults are the paper's
sizes. A model and its twin have the same parameter names, shapes and initial values.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from hardstep.nn.attention import ArgmaxAttention, SoftmaxAttention
from hardstep.nn.quantized import (
    Binary,
    Quantize,
    Relaxed,
    Ternary,
    TransformedLinear,
    WeightTransform,
)
from hardstep.nn.routing import HardMoE, SoftMoE
from hardstep.nn.spiking import LIF, SmoothLIF, SpikingMLP
from hardstep.nn.staircase import Staircase
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
