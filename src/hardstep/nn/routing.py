"""Mixtures of experts: out = E_j(h) with j = argmax(gate(h)), or its soft average.

Every expert is computed for every example and the chosen row gathered: no boolean indexing, so
the layer can be evaluated for many parameter sets at once under `torch.func.vmap`.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hardstep.errors import ConfigError


class _Mixture(nn.Module, ABC):
    """A linear gate and experts dim-dim-ReLU-dim; subclasses say how outputs are combined."""

    def __init__(self, dim: int = 128, num_experts: int = 4) -> None:
        super().__init__()
        if dim < 1 or num_experts < 1:
            raise ConfigError(
                f"{type(self).__name__}: dim and num_experts must be at least 1, "
                f"got {dim} and {num_experts}"
            )
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
