"""A user's task: digits told apart by ferns, tables that binary tests choose entries of.

hardstep train examples/own_task.py:ferns
"""

import torch
from torch import nn

from hardstep.data import digits
from hardstep.tasks import Task


class Ferns(nn.Module):
    """Five tests choose one row of a fern's table; the chosen rows of all ferns add up."""

    def __init__(self, ferns: int = 8, tests: int = 5) -> None:
        super().__init__()
        self.tests = nn.Linear(64, ferns * tests)
        self.tables = nn.Parameter(0.1 * torch.randn(ferns * 2**tests, 10))
        self.bits = 2 ** torch.arange(tests)
        self.first = 2**tests * torch.arange(ferns)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scores of ten classes."""
        answers = (self.tests(pixels) > 0).view(-1, len(self.first), len(self.bits))
        return self.tables[self.first + (answers * self.bits).sum(-1)].sum(1)


ferns = Task("ferns", "eight ferns of five tests", data=digits, model=Ferns, steps=60)
