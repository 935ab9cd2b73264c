"""The staircase activation: floor(levels * sigmoid(x)) / levels.

Its smooth twin is the sigmoid itself, `torch.nn.Sigmoid`.
"""

import torch
from torch import Tensor, nn

from hardstep._checks import check_count


class Staircase(nn.Module):
    """A sigmoid with `levels` flat steps: no slope anywhere, a bounded output everywhere.

    Values are 0, 1/levels, ..., 1 - 1/levels; 1 only where the sigmoid itself rounds to 1.
    """

    def __init__(self, levels: int = 5) -> None:
        super().__init__()
        check_count("Staircase: levels", levels)
        self.levels = levels

    def forward(self, inputs: Tensor) -> Tensor:
        """The step each input stands on, same shape."""
        return torch.floor(self.levels * torch.sigmoid(inputs)) / self.levels

    def extra_repr(self) -> str:
        """The number of steps, for printing the module."""
        return f"levels={self.levels}"
