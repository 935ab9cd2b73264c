"""Small policies: observation → hidden units → outputs, of which the action space chooses.

hidden      relu, tanh, int8 or binary (see `stacks`)
weights     float; int8, binary or ternary values, read from float parameters
hidden = 0  a linear policy; it starts at zero, where no action is preferred

INT8 weights have the scale max|w|/127 of their tensor. Actions are clipped or compared, so training
may enlarge weights without end: levels fixed in advance would pin them at the last one.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from hardstep._checks import check_count, check_name
from hardstep.nn import AbsMax, Binary, Ternary, TransformedLinear, WeightTransform
from hardstep.nn.quantized import Identity
from hardstep.rl.spaces import Array, Space
from hardstep.rl.stacks import ACTIVATIONS, SMALLEST, Stack

WEIGHTS: dict[str, WeightTransform] = {
    "float": Identity(),
    "int8": AbsMax(),
    "binary": Binary(),
    "ternary": Ternary(),
}


class Policy(nn.Module):
    """A policy with one hidden layer, or none.

    Args:
        observations: Numbers in an observation.
        space: Of the actions.
        hidden: Hidden units; 0 for a linear policy.
        activation: Of the hidden units: relu, tanh, int8 or binary.
        weights: What the parameters are rounded to: float, int8, binary or ternary.
        normalize: Whether observations are shifted and scaled by what training has seen.
    """

    mean: Tensor
    squares: Tensor
    count: Tensor

    def __init__(
        self,
        observations: int,
        space: Space,
        hidden: int = 16,
        activation: str = "relu",
        weights: str = "float",
        normalize: bool = False,
    ) -> None:
        super().__init__()
        check_count("Policy: observations", observations)
        check_count("Policy: hidden", hidden, 0)
        check_name(activation, ACTIVATIONS, "activation of a policy")
        check_name(weights, WEIGHTS, "kind of weights of a policy")
        self.space, self.activation, self.normalize = space, activation, normalize
        self.weights = weights
        sizes = [observations, *([hidden] if hidden else []), space.outputs]
        self.layers = nn.ModuleList(
            TransformedLinear(before, after, transform=WEIGHTS[weights])
            for before, after in zip(sizes, sizes[1:], strict=False)
        )
        if not hidden:  # there are no units that a random start would have to tell apart
            for parameter in self.parameters():
                nn.init.zeros_(parameter)
        # Running sums in float64: they are statistics, not weights, and part of the checkpoint.
        self.register_buffer("mean", torch.zeros(observations, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(observations, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @property
    def observations(self) -> int:
        """Numbers in an observation."""
        return len(self.mean)

    def forward(self, observations: Tensor) -> Tensor:
        """The outputs (B, outputs) for observations (B, O)."""
        stack = self.stack({name: value[None] for name, value in self.named_parameters()})
        each = np.zeros(len(observations), dtype=np.int64)
        return torch.from_numpy(stack.outputs(each, observations.numpy(force=True)))

    def act(self, observations: Array) -> Array:
        """The actions for observations (B, O)."""
        return self.space.choose(self.forward(torch.from_numpy(np.asarray(observations))).numpy())

    def stack(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Stack:
        """The policies whose parameters are stacked as {name: (N, *shape)}."""
        layers = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, TransformedLinear)
            name = f"{prefix}layers.{number}"
            weight, bias = tensors[f"{name}.weight"].detach(), tensors[f"{name}.bias"].detach()
            transform = torch.vmap(layer.transform)  # each policy's tensor has its own scale
            weight = transform(weight)
            bias = transform(bias) if layer.transform.covers_bias else bias
            layers.append(
                (
                    np.ascontiguousarray(weight.double().cpu().numpy()),
                    np.ascontiguousarray(bias.double().cpu().numpy()),
                )
            )
        mean, scale = self.normalizer()
        return Stack(tuple(layers), self.activation, mean, scale, self.space)

    def normalizer(self) -> tuple[Array, Array]:
        """What is taken from an observation, and what the rest is multiplied by."""
        if not self.normalize or float(self.count) < 2:
            return np.zeros(self.observations), np.ones(self.observations)
        spread = (self.squares / self.count).sqrt()
        # A number that never changes is left as it is: nothing is known of its spread.
        scale = torch.where(spread > SMALLEST, 1 / spread.clamp_min(SMALLEST), 1.0)
        return self.mean.numpy(), scale.numpy()

    @torch.no_grad()
    def observe(self, sums: Array, squares: Array, count: float) -> None:
        """Take in observations: their sums (O,), sums of squares (O,) and how many there were."""
        if count < 1:
            return
        mean = torch.from_numpy(sums) / count
        around = torch.from_numpy(squares) - count * mean**2  # Σ (x − mean)²
        both = float(self.count) + count
        shift = mean - self.mean
        self.squares += around.clamp_min(0) + shift**2 * float(self.count) * count / both
        self.mean += shift * count / both
        self.count.fill_(both)

    def extra_repr(self) -> str:
        """Activation, weights and space."""
        return f"activation={self.activation}, weights={self.weights}, space={self.space}"
