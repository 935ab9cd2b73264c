"""torch's recurrent layers, time step by time step.

`nn.LSTM`, `nn.GRU` and `nn.RNN` are one operator each, and oneDNN's LSTM hides the recurrence from
whoever watches operations. Here they are the operations of their formulas, in torch's order, so
that a record shows what every time step does; a loop that somebody wrote shows the same.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]  # hidden, and of an LSTM the cell
Layered = tuple[Sequence[Tensor], ...]  # the same by layer and direction


class Weights(NamedTuple):
    """Of one layer in one direction."""

    input: Tensor
    hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None
    projection: Tensor | None


Cell = Callable[[Tensor, State, Weights], State]


def _advance_lstm(gates: Tensor, state: State, weights: Weights) -> State:
    hidden, cell = state
    both = F.linear(hidden, weights.hidden, weights.hidden_bias) + gates
    enter, forget, new, leave = both.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    hidden = leave.sigmoid() * cell.tanh()
    return hidden if weights.projection is None else F.linear(hidden, weights.projection), cell


def _advance_gru(gates: Tensor, state: State, weights: Weights) -> State:
    (hidden,) = state
    old = F.linear(hidden, weights.hidden, weights.hidden_bias).chunk(3, 1)
    new = gates.chunk(3, 1)
    reset, update = (old[0] + new[0]).sigmoid(), (old[1] + new[1]).sigmoid()
    found = (new[2] + old[2] * reset).tanh()
    return ((hidden - found) * update + found,)


def _advance_simple(function: Callable[[Tensor], Tensor]) -> Cell:
    def advance(gates: Tensor, state: State, weights: Weights) -> State:
        (hidden,) = state
        return (function(F.linear(hidden, weights.hidden, weights.hidden_bias) + gates),)

    return advance


# The formula of each, by torch's function.
CELLS: dict[Any, Cell] = {
    torch.lstm: _advance_lstm,
    torch.gru: _advance_gru,
    torch.rnn_tanh: _advance_simple(torch.tanh),
    torch.rnn_relu: _advance_simple(torch.relu),
}


def is_packed(args: Sequence[Any]) -> bool:
    """Whether a recurrent layer is given a packed sequence: sizes of batches come second then."""
    return len(args) > 3 and not isinstance(args[3], bool)


def unroll(
    cell: Cell,
    inputs: Tensor,
    state: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Outputs and last states, as torch's function returns them for the same arguments."""
    axis, directions = int(batch_first), 1 + bidirectional
    first = [part.unbind() for part in ((state,) if isinstance(state, Tensor) else state)]
    own = list(_split_weights(weights, has_biases, num_layers * directions))
    steps: Sequence[Tensor] = inputs.unbind(axis)
    last: list[State] = []
    for layer in range(num_layers):
        places = range(layer * directions, (layer + 1) * directions)
        ways = [
            _run(cell, steps, tuple(part[n] for part in first), own[n], backward=n > places[0])
            for n in places
        ]
        last += [end for _, end in ways]
        steps = ways[0][0] if not bidirectional else _join(ways[0][0], ways[1][0])
        if dropout > 0 and train and layer < num_layers - 1:
            # On all steps together, as torch does it, so that it draws the same random numbers.
            steps = F.dropout(torch.stack(steps), dropout).unbind()
    ends = (torch.stack(part) for part in zip(*last, strict=True))
    return (torch.stack(list(steps), axis), *ends)


def _split_weights(weights: Sequence[Tensor], has_biases: bool, num: int) -> Iterator[Weights]:
    each = len(weights) // num
    for start in range(0, len(weights), each):
        given = list(weights[start : start + each])
        biases = given[2:4] if has_biases else [None, None]
        rest = given[4 if has_biases else 2 :]
        yield Weights(given[0], given[1], biases[0], biases[1], rest[0] if rest else None)


def _run(
    cell: Cell, steps: Sequence[Tensor], state: State, weights: Weights, backward: bool
) -> tuple[list[Tensor], State]:
    """Hidden states in the order of the inputs, and the state after the last step."""
    found = []
    for step in reversed(steps) if backward else steps:
        state = cell(F.linear(step, weights.input, weights.input_bias), state, weights)
        found.append(state[0])
    return (found[::-1] if backward else found), state


def _join(forward: list[Tensor], backward: list[Tensor]) -> list[Tensor]:
    return [torch.cat(pair, 1) for pair in zip(forward, backward, strict=True)]
