"""Policies as arrays: what environments play, without torch.

    relu, tanh
    int8     round(h/s)·s with s = max|h|/127 over the units
    binary   sign

Arithmetic is in float64, whatever the parameters were, so that many policies computed together act
as one does alone. Worker processes import this module and numpy, so they start within a second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hardstep.rl.spaces import Array, Space

LEVELS = 127.0  # of an INT8 activation, on either side of zero
SMALLEST = 1e-8  # a scale of nothing but zeros would divide by zero


def _to_int8(hidden: Array) -> Array:
    scale = np.maximum(np.abs(hidden).max(axis=-1, keepdims=True), SMALLEST) / LEVELS
    rounded: Array = np.round(hidden / scale) * scale
    return rounded


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda hidden: np.maximum(hidden, 0.0),
    "tanh": np.tanh,
    "int8": _to_int8,
    "binary": lambda hidden: np.where(hidden >= 0, 1.0, -1.0),
}


@dataclass(frozen=True)
class Stack:
    """N policies of one shape, with the weights they compute with."""

    layers: tuple[tuple[Array, Array], ...]  # weights (N, out, in) and bias (N, out), in float64
    activation: str
    mean: Array  # (O,) taken from an observation,
    scale: Array  # (O,) and what the rest is multiplied by
    space: Space

    def __len__(self) -> int:
        return len(self.layers[0][0])

    def outputs(self, policies: Array, observations: Array) -> Array:
        """The outputs (B, outputs) of these policies (B,), each for its observation (B, O)."""
        values = (np.asarray(observations, dtype=np.float64) - self.mean) * self.scale
        for number, (weights, bias) in enumerate(self.layers):
            if number:
                values = ACTIVATIONS[self.activation](values)
            values = np.matmul(weights[policies], values[:, :, None])[:, :, 0] + bias[policies]
        return values

    def act(self, policies: Array, observations: Array) -> Array:
        """The actions of these policies (B,), each for its observation (B, O)."""
        return self.space.choose(self.outputs(policies, observations))

    def act_alone(self, policy: int, observation: Array) -> Array:
        """The action of one policy for an observation (O,): the bits of `act`, with less to do."""
        values = (observation - self.mean) * self.scale
        for number, (weights, bias) in enumerate(self.layers):
            if number:
                values = ACTIVATIONS[self.activation](values)
            values = weights[policy] @ values + bias[policy]
        return self.space.choose(values)

    def take(self, start: int, stop: int) -> "Stack":
        """Some of the policies."""
        layers = tuple((weights[start:stop], bias[start:stop]) for weights, bias in self.layers)
        return replace(self, layers=layers)
