"""The policy inside the kernel: one candidate in every lane, each with its own weights.

The weights of a candidate are one row of numbers: weights (out, in) and bias (out) of the hidden
layer if there is one, then those of the outputs. `parameters` has them as (P, LANES).
"""

from typing import Any

import numpy as np

from hardstep.rl.classic.compiled import LANES, jit
from hardstep.rl.classic.mathematics import tanh

Lanes = Any
ACTIVATIONS = ("relu", "tanh", "int8", "binary")
_RELU, _TANH, _INT8, _BINARY = range(4)
_LEVELS = 127.0
_SMALLEST = 1e-8  # a scale of nothing but zeros would divide by zero


@jit
def normalize(observed: Lanes, mean: Lanes, scale: Lanes, inputs: Lanes) -> None:
    """(observation - mean) * scale."""
    for i in range(len(inputs)):
        for lane in range(LANES):
            inputs[i, lane] = (observed[i, lane] - mean[i]) * scale[i]


@jit
def apply_layer(parameters: Lanes, first: int, inputs: Lanes, outputs: Lanes) -> int:
    """Bias plus weights times inputs, in this order; where the next layer's parameters begin."""
    num_in, num_out = len(inputs), len(outputs)
    bias = first + num_in * num_out
    for j in range(num_out):
        row, i = first + j * num_in, 0
        for lane in range(LANES):
            outputs[j, lane] = parameters[bias + j, lane]
        while i + 4 <= num_in:  # four at a time: fewer sums go through memory
            for lane in range(LANES):
                value = outputs[j, lane] + parameters[row + i, lane] * inputs[i, lane]
                value = value + parameters[row + i + 1, lane] * inputs[i + 1, lane]
                value = value + parameters[row + i + 2, lane] * inputs[i + 2, lane]
                value = value + parameters[row + i + 3, lane] * inputs[i + 3, lane]
                outputs[j, lane] = value
            i += 4
        while i < num_in:
            for lane in range(LANES):
                outputs[j, lane] += parameters[row + i, lane] * inputs[i, lane]
            i += 1
    return bias + num_out


@jit
def activate(activation: int, hidden: Lanes, scale: Lanes) -> None:
    """The hidden units, in place; NaN stays NaN, except that its sign is -1.

    Args:
        activation: A place in ACTIVATIONS.
        hidden: (H, LANES).
        scale: (LANES,) to compute with.
    """
    if activation == _INT8:
        round_to_int8(hidden, scale)
        return
    for j in range(len(hidden)):
        if activation == _RELU:
            for lane in range(LANES):
                hidden[j, lane] = 0.0 if hidden[j, lane] < 0 else hidden[j, lane]
        elif activation == _TANH:
            for lane in range(LANES):
                hidden[j, lane] = tanh(hidden[j, lane])
        else:
            for lane in range(LANES):
                hidden[j, lane] = 1.0 if hidden[j, lane] >= 0 else -1.0


@jit
def round_to_int8(hidden: Lanes, scale: Lanes) -> None:
    """Multiples of the largest magnitude / 127, ties to even."""
    for lane in range(LANES):
        scale[lane] = _SMALLEST
    for j in range(len(hidden)):
        for lane in range(LANES):
            size = abs(hidden[j, lane])
            scale[lane] = size if size > scale[lane] else scale[lane]
    for lane in range(LANES):
        scale[lane] = scale[lane] / _LEVELS
    for j in range(len(hidden)):
        for lane in range(LANES):
            hidden[j, lane] = np.rint(hidden[j, lane] / scale[lane]) * scale[lane]


@jit
def choose(outputs: Lanes, best: Lanes, action: Lanes, invalid: Lanes) -> None:
    """The first of the largest outputs, or the only output; and 1 where one is NaN, else 0."""
    for lane in range(LANES):
        best[lane] = outputs[0, lane]
        action[lane] = 0.0 if len(outputs) > 1 else outputs[0, lane]
        invalid[lane] = 1.0 if outputs[0, lane] != outputs[0, lane] else 0.0
    for k in range(1, len(outputs)):
        for lane in range(LANES):
            value = outputs[k, lane]
            action[lane] = np.float64(k) if value > best[lane] else action[lane]
            best[lane] = value if value > best[lane] else best[lane]
            invalid[lane] = 1.0 if value != value else invalid[lane]
