"""What `explain` says to try: where an idiom is costly, and only there."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Batched, Incremental
from hardstep.nn import build

from .explained import (
    CLASSES,
    HIDDEN,
    atan,
    branches,
    branches_by_value,
    explained,
    item,
    layers,
    parameters_of,
    relu,
)


def quantize(weight, scale):
    return (weight / scale).round().clamp(-127, 127) * scale


def scaled(reduce):
    def forward(self, x):
        weight = quantize(self.fc.weight, reduce(self.fc.weight) / 127)
        return self.out(torch.relu(F.linear(x, weight, self.fc.bias)))

    return forward


def spread(forward):
    """The same with an axis of size 1 between examples and units."""
    return lambda self, x: forward(self.out(torch.relu(self.fc(x.unsqueeze(1)))))


def zero_negative(hidden):
    hidden[hidden < 0] = 0
    return hidden


def zero_first(hidden):
    hidden[:, 0] = 0
    return hidden


class Recurrent(nn.Module):
    """The last state of a layer of torch's own."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(4, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.out(self.layer(x.reshape(-1, 5, 4))[0][:, -1])


SCALE, TENSOR = "outside forward, as a buffer", "keep the value a tensor"


@pytest.mark.parametrize(
    ("advice", "function"),
    [
        (SCALE, scaled(lambda w: w.abs().amax())),
        (SCALE, scaled(lambda w: w.abs().max())),
        (SCALE, scaled(lambda w: w.abs().mean())),
        (SCALE, scaled(lambda w: w.norm())),
        (TENSOR, branches),
        (TENSOR, branches_by_value),
        ("(a / b).floor()", lambda self, x: self.out(self.fc(x) // 0.3)),
        ("no .numpy()", lambda self, x: self.out(torch.from_numpy(self.fc(x).numpy()))),
        ("torch.stack", lambda self, x: self.out(self.fc(x)) * torch.tensor([self.fc.bias[0]])),
        ("masked_fill", lambda self, x: self.out(zero_negative(self.fc(x)))),
        ("multiply by a mask", lambda self, x: self.out(zero_first(self.fc(x)))),
    ],
)
def test_a_costly_idiom_has_its_advice(advice, function):
    for one in parameters_of(explained(layers(function)), "fc"):
        assert advice in one.advice


@pytest.mark.parametrize("evaluator", [Batched, Incremental])
@pytest.mark.parametrize(
    ("advice", "loss"),
    [
        (TENSOR, item),
        (TENSOR, lambda o, t: float(F.cross_entropy(o, t))),
        (TENSOR, lambda o, t: o.sum() if o.sum() > 0 else -o.sum()),
        ("no .tolist()", lambda o, t: torch.tensor(sum(o.sum(1).tolist()))),
        ("no .numpy()", lambda o, t: float((o.numpy() ** 2).mean())),
    ],
    ids=["item", "float", "branch", "tolist", "numpy"],
)
def test_a_loss_that_leaves_torch_has_its_advice(advice, loss, evaluator):
    for one in explained(layers(relu), loss=loss, evaluator=evaluator()).parameters:
        assert advice in one.advice


class Pooled(nn.Module):
    """A mean over pictures, which is no scale of a weight."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x.reshape(-1, 1, 4, 5))).mean((2, 3)))


@pytest.mark.parametrize(
    "model",
    [
        layers(relu),
        layers(atan),
        layers(scaled(lambda w: 0.5)),
        layers(scaled(lambda w: w.abs().amax(1, keepdim=True))),
        layers(scaled(lambda w: w.norm(dim=1, keepdim=True))),
        layers(spread(lambda out: out.squeeze(1))),
        layers(spread(lambda out: out[:, 0])),
        layers(lambda self, x: self.out(self.fc(torch.stack([x, x], 1))[:, 1])),
        build(Pooled, 0),
        build(lambda: Recurrent(nn.LSTM), 0),
        build(lambda: Recurrent(nn.RNN), 0),
    ],
    ids=[
        "relu",
        "atan",
        "buffer",
        "amax of rows",
        "norm of rows",
        "squeeze",
        "select",
        "one of two",
        "pooled",
        "lstm",
        "rnn",
    ],
)
def test_nothing_is_advised_that_would_not_help(model):
    """Reading the gallery's own way to write the same, or there being none."""
    explanation = explained(model)
    assert {one.advice for one in explanation.parameters} == {""}
