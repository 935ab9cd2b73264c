"""Recurrent networks, drawn at random: torch's layers, loops over its cells, loops by hand."""

import random

import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Problem
from hardstep.nn import build

from .random_models import CLASSES, LOSSES

FEATURES = 3


class Layers(nn.Module):
    """torch's recurrent layers; the state may be given, learned, or carried over a cut."""

    def __init__(self, draw):
        super().__init__()
        kind = draw.choice([nn.LSTM, nn.LSTM, nn.GRU, nn.RNN])
        self.size, self.num, self.first = draw.randint(2, 5), draw.choice([1, 1, 2]), draw.random()
        options = {"nonlinearity": draw.choice(["tanh", "relu"])} if kind is nn.RNN else {}
        if kind is nn.LSTM and draw.random() < 0.25:
            options["proj_size"] = self.size - 1
        both, self.batch_first = draw.random() < 0.4, draw.random() < 0.6
        self.recurrent = kind(
            FEATURES, self.size, self.num, bias=draw.random() < 0.8, bidirectional=both,
            batch_first=self.batch_first, dropout=0.3 if self.num > 1 else 0.0, **options,
        )  # fmt: skip
        self.directions = 1 + both
        self.hidden = options.get("proj_size", self.size)
        self.is_lstm = kind is nn.LSTM
        self.begin = draw.choice(["zeros", "given", "learned", "computed"])
        self.start = nn.Parameter(torch.randn(self.num * self.directions, 1, self.hidden))
        self.start.requires_grad_(self.begin in ("learned", "computed"))
        self.cut = draw.random() < 0.4
        self.reading = draw.choice(["last", "mean", "max", "state", "masked"])
        width = self.hidden * (1 if self.reading == "state" else self.directions)
        self.readout = nn.Linear(width, CLASSES)

    def _state(self, x):
        if self.begin == "zeros":
            return None
        if self.begin == "computed":
            hidden = torch.tanh(self.start) + x.new_zeros(len(self.start), len(x), self.hidden)
        else:
            hidden = self.start.expand(-1, len(x), -1).contiguous()
        if not self.is_lstm:
            return hidden
        return hidden, torch.ones(len(hidden), len(x), self.size, dtype=x.dtype)

    def forward(self, x):
        steps, state = x if self.batch_first else x.transpose(0, 1), self._state(x)
        time, found = int(self.batch_first), []
        pieces = steps.split(max(1, steps.shape[time] // 2), time) if self.cut else [steps]
        for piece in pieces:
            outputs, state = self.recurrent(piece, state)
            found.append(outputs)
        outputs = torch.cat(found, time) if self.cut else found[0]
        if self.reading == "state":
            return self.readout((state[0] if self.is_lstm else state)[-1])
        return self.readout(read_out(self.reading, outputs, time))


def read_out(reading, outputs, time):
    if reading == "last":
        return outputs[:, -1] if time else outputs[-1]
    if reading == "max":
        return outputs.max(time).values
    if reading == "masked":  # sequences of different lengths
        lengths = torch.arange(outputs.shape[1 - time]) % outputs.shape[time] + 1
        inside = torch.arange(outputs.shape[time])[None] < lengths[:, None]
        inside = (inside if time else inside.T)[..., None].to(outputs.dtype)
        return (outputs * inside.expand_as(outputs)).sum(time) / lengths[:, None]
    return outputs.mean(time)


class Loop(nn.Module):
    """A loop over one of torch's cells, or over a cell that somebody wrote."""

    def __init__(self, draw):
        super().__init__()
        size = self.size = draw.randint(2, 5)
        self.form = draw.choice(["lstm", "gru", "elman", "joined", "apart", "hard"])
        cells = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "elman": nn.RNNCell}
        if self.form in cells:
            self.cell = cells[self.form](FEATURES, size, bias=draw.random() < 0.8)
        elif self.form == "joined":
            self.gates = nn.Linear(FEATURES + size, 4 * size)
        else:
            self.enter = nn.Linear(FEATURES, 2 * size)
            self.again = nn.Linear(size, 2 * size, bias=draw.random() < 0.5)
        self.before = draw.random() < 0.3  # all inputs meet their weight before the loop
        self.averages = draw.random() < 0.5
        self.readout = nn.Linear(size, CLASSES)

    def _advance(self, x, state):
        hidden, cell = state
        if self.form == "lstm":
            return self.cell(x, state)
        if self.form in ("gru", "elman"):
            return self.cell(x, hidden), cell
        if self.form == "joined":
            enter, forget, new, leave = self.gates(torch.cat([x, hidden], 1)).chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            return leave.sigmoid() * cell.tanh(), cell
        both = (x if self.before else self.enter(x)) + self.again(hidden)
        gate, new = both[:, : self.size], both[:, self.size :]
        gate = (gate > 0).to(x.dtype) if self.form == "hard" else torch.sigmoid(gate)
        return torch.lerp(hidden, torch.tanh(new), gate), cell

    def forward(self, x):
        state, total = (x.new_zeros(len(x), self.size),) * 2, 0.0
        if self.before and self.form in ("apart", "hard"):
            x = self.enter(x)
        for step in x.unbind(1):
            state = self._advance(step, state)
            total = total + state[0]
        return self.readout(total / x.shape[1] if self.averages else state[0])


def draw_recurrence(seed, dtype=torch.float64):
    """(problem, what it is): a random recurrent network, a batch and a loss."""
    draw = random.Random(seed)
    kind = draw.choice([Layers, Loop])
    model = build(lambda: kind(draw), seed).to(dtype)
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    generator = torch.Generator().manual_seed(seed)
    batch, steps = draw.choice([1, 5, 6, 17]), draw.choice([1, 2, 4, 6])
    inputs = torch.randn(batch, steps, FEATURES, generator=generator, dtype=dtype)
    target = torch.randint(0, CLASSES, (batch,), generator=generator)
    loss = draw.choice([F.cross_entropy, LOSSES["hinge"], LOSSES["mse"]])
    return Problem(model, inputs, target, loss), ["recurrent", kind.__name__]
