"""An LSTM whose weights or gates may be hard.

    i, f, g, o = W x + U h + b                        four parts of the sum
    c ← gate(f) c + gate(i) tanh(g),   h ← gate(o) tanh(c)

The gate is the sigmoid, or `Step`, which is 1 where its input is at least 0 and else 0: it lets all
through or nothing, and has no slope. Weights and biases may pass through any `WeightTransform`.
Parameters have the names and shapes of `nn.LSTM`, so state dicts are interchangeable.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from hardstep._checks import check_count
from hardstep.nn.quantized import Identity, WeightTransform


class Step(nn.Module):
    """1 where the input is at least 0, else 0; no slope anywhere."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Zeros and ones, same shape."""
        return (inputs >= 0).to(inputs.dtype)


class HardLSTM(nn.Module):
    """One layer over inputs (batch, time, features); returns the hidden states, (batch, time, h).

    Args:
        inputs: Features of a time step.
        hidden: Units.
        transform: What weights and biases pass through.
        gate: What opens and closes; the sigmoid if left out.
    """

    transform: WeightTransform

    def __init__(
        self,
        inputs: int,
        hidden: int,
        transform: WeightTransform | None = None,
        gate: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_count("HardLSTM: inputs", inputs)
        check_count("HardLSTM: hidden", hidden)
        self.hidden = hidden
        self.transform = Identity() if transform is None else transform
        self.gate = nn.Sigmoid() if gate is None else gate
        self.weight_ih_l0 = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias_ih_l0 = nn.Parameter(torch.empty(4 * hidden))
        self.bias_hh_l0 = nn.Parameter(torch.empty(4 * hidden))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As `nn.LSTM`, then what the transform asks for."""
        bound = 1 / math.sqrt(self.hidden)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        self.transform.initialize(self.weight_ih_l0, self.bias_ih_l0)
        self.transform.initialize(self.weight_hh_l0, self.bias_hh_l0)

    def forward(self, inputs: Tensor) -> Tensor:
        """All hidden states, beginning from zeros."""
        weight, bias = self.transform(self.weight_hh_l0), self._read(self.bias_hh_l0)
        given = functional.linear(
            inputs, self.transform(self.weight_ih_l0), self._read(self.bias_ih_l0)
        )
        hidden = cell = inputs.new_zeros(len(inputs), self.hidden)
        found = []
        for sums in given.unbind(1):
            enter, forget, new, leave = (sums + functional.linear(hidden, weight, bias)).chunk(4, 1)
            cell = self.gate(forget) * cell + self.gate(enter) * new.tanh()
            hidden = self.gate(leave) * cell.tanh()
            found.append(hidden)
        return torch.stack(found, 1)

    def _read(self, bias: Tensor) -> Tensor:
        return self.transform(bias) if self.transform.covers_bias else bias

    def extra_repr(self) -> str:
        """Sizes and transform."""
        sizes = f"{self.weight_ih_l0.shape[1]}, {self.hidden}"
        return f"{sizes}, transform={self.transform}"
