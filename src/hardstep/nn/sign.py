"""The sign as an activation, and the scale that sums of signs need.

The smooth twin of the sign is the line from -1 to 1, clipped: `torch.nn.Hardtanh`.
"""

from torch import Tensor, nn

from hardstep._checks import check_positive
from hardstep.nn.quantized import binarize


class Sign(nn.Module):
    """One bit per activation: +1 where the input is at least 0, else -1; no slope anywhere."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Plus or minus one, same shape."""
        return binarize(inputs)


class Scale(nn.Module):
    """Times a constant.

    Behind a layer of many inputs it lets one step radius suit all layers: a step of the same length
    moves a sum of a thousand signs much further than a sum of nine.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        check_positive("Scale: factor", factor)
        self.factor = factor

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs times the factor."""
        return inputs * self.factor

    def extra_repr(self) -> str:
        """The factor, for printing the module."""
        return f"{self.factor}"
