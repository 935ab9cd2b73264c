"""Hard layers and the smooth twin of each, to build models with; `wake` for silent ones."""

from hardstep.nn.build import build
from hardstep.nn.quantized import (
    Binary,
    BinaryConv2d,
    BinaryLinear,
    Identity,
    Quantize,
    QuantizedConv2d,
    QuantizedLinear,
    Relaxed,
    StraightThrough,
    Ternary,
    TernaryConv2d,
    TernaryLinear,
    TransformedConv1d,
    TransformedConv2d,
    TransformedConv3d,
    TransformedLinear,
    WeightTransform,
    binarize,
    quantize,
    ternarize,
)
from hardstep.nn.recurrent import HardLSTM, Step
from hardstep.nn.selection import ArgmaxAttention, HardMoE, SoftmaxAttention, SoftMoE
from hardstep.nn.sign import Scale, Sign
from hardstep.nn.spiking import (
    LIF,
    Neuron,
    SmoothLIF,
    SpikingMLP,
    SpikingNet,
    SpikingVGG11Small,
    SurrogateLIF,
)
from hardstep.nn.staircase import Staircase
from hardstep.nn.surrogate import Surrogate, with_surrogates
from hardstep.nn.tokens import ArgmaxSelfAttention, EncoderLayer, SoftmaxSelfAttention
from hardstep.nn.wake import WakeReport, Woken, wake

__all__ = [
    "ArgmaxAttention",
    "ArgmaxSelfAttention",
    "Binary",
    "BinaryConv2d",
    "BinaryLinear",
    "EncoderLayer",
    "HardLSTM",
    "HardMoE",
    "Identity",
    "LIF",
    "Neuron",
    "Quantize",
    "QuantizedConv2d",
    "QuantizedLinear",
    "Relaxed",
    "Scale",
    "Sign",
    "SmoothLIF",
    "SoftMoE",
    "SoftmaxAttention",
    "SoftmaxSelfAttention",
    "SpikingMLP",
    "SpikingNet",
    "SpikingVGG11Small",
    "Staircase",
    "Step",
    "StraightThrough",
    "Surrogate",
    "SurrogateLIF",
    "Ternary",
    "TernaryConv2d",
    "TernaryLinear",
    "TransformedConv1d",
    "TransformedConv2d",
    "TransformedConv3d",
    "TransformedLinear",
    "WakeReport",
    "WeightTransform",
    "Woken",
    "binarize",
    "build",
    "quantize",
    "ternarize",
    "wake",
    "with_surrogates",
]
