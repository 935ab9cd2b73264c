"""Layers whose weights pass through a step function before use.

    quantized  clamp(round(w / scale), -2^(b-1), 2^(b-1) - 1) * scale
    absmax     round(w / s) * s, with s = max|w| / (2^(b-1) - 1) over the tensor
    binary     sign(w) * scale, with sign(0) = +1
    ternary    sign(w) * 1[|w| >= threshold]

A layer is an ordinary torch layer plus a `WeightTransform`, which also knows how its weights
should start. The smooth twin of a layer is the same layer with another transform: `Relaxed`
leaves the weights as they are, `StraightThrough` uses the hard ones and pretends otherwise to
autograd. Both keep the names and start of the parameters, so state dicts are interchangeable.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from hardstep._checks import check_count, check_positive
from hardstep.errors import ConfigError


def quantize(weight: Tensor, scale: float = 0.01, bits: int = 8) -> Tensor:
    """The nearest of the 2^bits multiples of `scale` around zero."""
    levels = 2 ** (bits - 1)
    return torch.clamp(torch.round(weight / scale), -levels, levels - 1) * scale


def binarize(weight: Tensor) -> Tensor:
    """+1 where the weight is at least 0, else -1."""
    return 2.0 * (weight >= 0).to(weight.dtype) - 1.0


def ternarize(weight: Tensor, threshold: float = 0.5) -> Tensor:
    """The sign where the magnitude reaches the threshold, else 0."""
    return torch.sign(weight) * (weight.abs() >= threshold).to(weight.dtype)


class WeightTransform(ABC):
    """What a layer does to its weights on every forward pass, and how they start."""

    covers_bias: bool = False  # whether the bias passes through it too

    @abstractmethod
    def __call__(self, weight: Tensor) -> Tensor:
        """The weights to compute with, same shape."""

    def initialize(self, weight: Tensor, bias: Tensor | None) -> None:
        """Overwrite torch's initial values in place where they do not suit."""
        del weight, bias  # torch's own initial values stay


@dataclass(frozen=True)
class Identity(WeightTransform):
    """No transform: an ordinary layer."""

    def __call__(self, weight: Tensor) -> Tensor:
        """The weights themselves."""
        return weight


@dataclass(frozen=True)
class Quantize(WeightTransform):
    """Fixed-point weights and bias, for integer hardware; starts at 0.1 N(0, 1), bias 0."""

    scale: float = 0.01
    bits: int = 8
    covers_bias = True

    def __post_init__(self) -> None:
        check_positive("Quantize: scale", self.scale)
        check_count("Quantize: bits", self.bits)

    def __call__(self, weight: Tensor) -> Tensor:
        """Multiples of the scale."""
        return quantize(weight, self.scale, self.bits)

    def initialize(self, weight: Tensor, bias: Tensor | None) -> None:
        """Weights 0.1 N(0, 1), bias 0."""
        nn.init.normal_(weight, std=0.1)
        if bias is not None:
            nn.init.zeros_(bias)


@dataclass(frozen=True)
class AbsMax(WeightTransform):
    """Fixed-point weights and bias whose scale follows the largest number of each tensor.

    Nothing is clamped, so weights may grow without end, as those of a clipped linear policy do.
    """

    bits: int = 8
    covers_bias = True

    def __post_init__(self) -> None:
        check_count("AbsMax: bits", self.bits, 2)

    def scale(self, weight: Tensor) -> Tensor:
        """The distance between two levels; a constant to autograd."""
        levels = 2 ** (self.bits - 1) - 1
        smallest = levels * torch.finfo(weight.dtype).tiny
        scale: Tensor = weight.detach().abs().amax().clamp_min(smallest) / levels
        return scale

    def __call__(self, weight: Tensor) -> Tensor:
        """Multiples of the tensor's scale."""
        scale = self.scale(weight)
        return torch.round(weight / scale) * scale


@dataclass(frozen=True)
class Binary(WeightTransform):
    """One bit per weight, the bias continuous (as the paper's binary head).

    A layer of n inputs sums n signs. With a scale near 1 / sqrt(n) its outputs are of order one, so
    that its bias and what follows act on them; a power of two leaves sums of signs exact.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("Binary: scale", self.scale)

    def __call__(self, weight: Tensor) -> Tensor:
        """Plus or minus the scale."""
        return binarize(weight) if self.scale == 1.0 else binarize(weight) * self.scale


@dataclass(frozen=True)
class Ternary(WeightTransform):
    """Weights that may also be absent, the bias continuous.

    Weights start uniform over twice the dead zone, so half are absent: torch's initial values
    lie inside the dead zone of any layer with more than four inputs, a network of zeros.
    """

    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not self.threshold > 0.0:
            raise ConfigError(f"Ternary: threshold must be > 0, got {self.threshold}")

    def __call__(self, weight: Tensor) -> Tensor:
        """Minus one, zero or one."""
        return ternarize(weight, self.threshold)

    def initialize(self, weight: Tensor, bias: Tensor | None) -> None:
        """Weights uniform in plus or minus twice the threshold, the bias as torch left it."""
        del bias
        nn.init.uniform_(weight, -2.0 * self.threshold, 2.0 * self.threshold)


@dataclass(frozen=True)
class Relaxed(WeightTransform):
    """The smooth twin: weights untouched, started as those of the transform it replaces."""

    hard: WeightTransform

    def __call__(self, weight: Tensor) -> Tensor:
        """The weights themselves."""
        return weight

    def initialize(self, weight: Tensor, bias: Tensor | None) -> None:
        """As the replaced transform."""
        self.hard.initialize(weight, bias)


@dataclass(frozen=True)
class StraightThrough(Relaxed):
    """Hard weights forward, the identity backward; prefer it where rounding is coarse."""

    def __call__(self, weight: Tensor) -> Tensor:
        """Exactly the hard weights; their gradient passes unchanged."""
        return self.hard(weight).detach() + (weight - weight.detach())

    @property
    def covers_bias(self) -> bool:  # type: ignore[override]
        """As the wrapped transform."""
        return self.hard.covers_bias


class Transformed(nn.Module):
    """Mixed into a torch layer: its weights are read through a transform."""

    default: ClassVar[WeightTransform] = Identity()
    transform: WeightTransform
    weight: Tensor
    bias: Any  # a tensor or None; torch's layers do not agree on its declared type

    def __init__(
        self, *args: Any, transform: WeightTransform | None = None, **options: Any
    ) -> None:
        # Set first: torch's constructor calls reset_parameters, which needs it.
        self.transform = self.default if transform is None else transform
        super().__init__(*args, **options)

    def reset_parameters(self) -> None:
        """Torch's initial values, then those the transform asks for."""
        super().reset_parameters()  # type: ignore[misc]
        with torch.no_grad():
            self.transform.initialize(self.weight, self.bias)

    def hard_parameters(self) -> tuple[Tensor, Tensor | None]:
        """The weight and bias the layer computes with."""
        through_bias = self.transform.covers_bias and self.bias is not None
        bias = self.transform(self.bias) if through_bias else self.bias
        return self.transform(self.weight), bias

    def extra_repr(self) -> str:
        """Torch's description and the transform."""
        return f"{super().extra_repr()}, transform={self.transform}"


class TransformedLinear(Transformed, nn.Linear):
    """`nn.Linear` (same arguments, then `transform=`) with any weight transform."""

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output under its transformed weights."""
        return functional.linear(input, *self.hard_parameters())


class _TransformedConv(Transformed):
    def forward(self, input: Tensor) -> Tensor:
        """The layer's output under its transformed weights."""
        output: Tensor = self._conv_forward(input, *self.hard_parameters())  # type: ignore[operator]
        return output


class TransformedConv1d(_TransformedConv, nn.Conv1d):
    """`nn.Conv1d` (same arguments, then `transform=`) with any weight transform."""


class TransformedConv2d(_TransformedConv, nn.Conv2d):
    """`nn.Conv2d` (same arguments, then `transform=`) with any weight transform."""


class TransformedConv3d(_TransformedConv, nn.Conv3d):
    """`nn.Conv3d` (same arguments, then `transform=`) with any weight transform."""


class QuantizedLinear(TransformedLinear):
    """A fixed-point linear layer, INT8 unless `transform=Quantize(scale, bits)` says otherwise."""

    default = Quantize()


class QuantizedConv2d(TransformedConv2d):
    """A fixed-point convolution, INT8 unless `transform=Quantize(scale, bits)` says otherwise."""

    default = Quantize()


class BinaryLinear(TransformedLinear):
    """A linear layer with weights of plus or minus one."""

    default = Binary()


class BinaryConv2d(TransformedConv2d):
    """A convolution with weights of plus or minus one."""

    default = Binary()


class TernaryLinear(TransformedLinear):
    """A linear layer with weights of minus one, zero or one."""

    default = Ternary()


class TernaryConv2d(TransformedConv2d):
    """A convolution with weights of minus one, zero or one."""

    default = Ternary()
