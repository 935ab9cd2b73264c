"""Attention to one of a few learned keys: j = argmax(h keys^T), out = V(h) * sigmoid(keys_j).

The smooth twin averages the gates with softmax weights: out = V(h) * sum_j p_j sigmoid(keys_j),
p = softmax(h keys^T).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hardstep.errors import ConfigError


class _KeyedGate(nn.Module, ABC):
    """Values gated by keys; subclasses say how scores become one gate."""

    def __init__(self, dim: int = 128, num_keys: int = 8) -> None:
        super().__init__()
        if dim < 1 or num_keys < 1:
            raise ConfigError(
                f"{type(self).__name__}: dim and num_keys must be at least 1, "
                f"got {dim} and {num_keys}"
            )
        self.keys = nn.Parameter(0.5 * torch.randn(num_keys, dim))
        self.values = nn.Linear(dim, dim)

    @abstractmethod
    def select(self, scores: Tensor, gates: Tensor) -> Tensor:
        """One gate (..., dim) per row of scores (..., num_keys) out of gates (num_keys, dim)."""

    def forward(self, hidden: Tensor) -> Tensor:
        """The gated values (..., dim)."""
        gate = self.select(hidden @ self.keys.T, torch.sigmoid(self.keys))
        output: Tensor = self.values(hidden) * gate
        return output


class ArgmaxAttention(_KeyedGate):
    """Hard attention: the best key takes all, and no gradient reaches the choice."""

    def select(self, scores: Tensor, gates: Tensor) -> Tensor:
        """The gate of the best key; ties go to the first."""
        return gates[scores.argmax(dim=-1)]


class SoftmaxAttention(_KeyedGate):
    """The twin of `ArgmaxAttention` for backpropagation: every key by its softmax weight."""

    def select(self, scores: Tensor, gates: Tensor) -> Tensor:
        """The average gate."""
        return torch.softmax(scores, dim=-1) @ gates
