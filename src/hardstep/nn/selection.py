"""Layers that choose by argmax, and their smooth twins, which average by softmax.

    attention to one of a few learned keys, with s = h keys^T
        hard   out = V(h) * sigmoid(keys_j),  j = argmax(s)
        smooth out = V(h) * sum_j p_j sigmoid(keys_j),  p = softmax(s)
    a mixture of experts, with s = gate(h)
        hard   out = E_j(h),  j = argmax(s)
        smooth out = sum_j p_j E_j(h),  p = softmax(s)

Every expert is computed for every example and the chosen one gathered: no boolean indexing, so
the layers can be evaluated for many parameter sets at once under `torch.func.vmap`.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hardstep._checks import check_count


class _KeyedGate(nn.Module, ABC):
    """Values gated by keys; subclasses say how scores become one gate."""

    def __init__(self, dim: int = 128, num_keys: int = 8) -> None:
        super().__init__()
        check_count(f"{type(self).__name__}: dim", dim)
        check_count(f"{type(self).__name__}: num_keys", num_keys)
        self.keys = nn.Parameter(0.5 * torch.randn(num_keys, dim))
        self.values = nn.Linear(dim, dim)

    @abstractmethod
    def select(self, scores: Tensor, gates: Tensor) -> Tensor:
        """One gate (..., dim) from scores (..., num_keys) and gates (num_keys, dim)."""

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


class _Mixture(nn.Module, ABC):
    """A linear gate and experts dim-dim-ReLU-dim; subclasses say how outputs are combined."""

    def __init__(self, dim: int = 128, num_experts: int = 4) -> None:
        super().__init__()
        check_count(f"{type(self).__name__}: dim", dim)
        check_count(f"{type(self).__name__}: num_experts", num_experts)
        self.gate = nn.Linear(dim, num_experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
            for _ in range(num_experts)
        )

    @abstractmethod
    def combine(self, scores: Tensor, outputs: Tensor) -> Tensor:
        """One output (..., dim) from scores (..., experts) and outputs (..., experts, dim)."""

    def forward(self, hidden: Tensor) -> Tensor:
        """The combined output (..., dim)."""
        outputs = torch.stack([expert(hidden) for expert in self.experts], dim=-2)
        return self.combine(self.gate(hidden), outputs)


class HardMoE(_Mixture):
    """Top-1 routing: one expert answers, and no gradient reaches the gate."""

    def combine(self, scores: Tensor, outputs: Tensor) -> Tensor:
        """The output of the expert with the best score; ties go to the first."""
        chosen = scores.argmax(dim=-1)[..., None, None]
        return torch.take_along_dim(outputs, chosen, dim=-2).squeeze(-2)


class SoftMoE(_Mixture):
    """The twin of `HardMoE` for backpropagation: every expert by its softmax weight."""

    def combine(self, scores: Tensor, outputs: Tensor) -> Tensor:
        """The weighted average of the experts' outputs."""
        return (torch.softmax(scores, dim=-1)[..., None] * outputs).sum(dim=-2)
