"""The sign as an activation: +1 where the input is at least 0, else -1.

Its smooth twin is the line between the two, clipped: `torch.nn.Hardtanh`.
"""

from torch import Tensor, nn

from hardstep.nn.quantized import binarize


class Sign(nn.Module):
    """One bit per activation: no slope anywhere, and a sign of 0 is +1."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Plus or minus one, same shape."""
        return binarize(inputs)
