"""Holding other tensors gives what torch's `functional_call` gives, and leaves the model alone."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

from hardstep import PolyStep
from hardstep.evaluation import Batched, Incremental, OneByOne
from hardstep.evaluation.slots import Slots

from .catalogue import candidates_for, classify, made


class Tied(nn.Module):
    """One weight under two names, and one layer under two."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first
        self.register_buffer("shift", torch.ones(4))
        self.register_buffer("absent", None)
        self.twin = nn.BatchNorm1d(4)
        self.twin.register_buffer("shift", self.shift)

    def forward(self, inputs):
        hidden = self.again(torch.relu(self.second(self.first(inputs)))) + self.shift
        return self.twin(hidden) * self.twin.shift


class Recurrent(nn.Module):
    """A layer of torch that keeps a list of its own weights."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 4, batch_first=True)

    def forward(self, inputs):
        return self.cell(inputs[:, None])[0]


MODELS = {
    "tied": Tied,
    "recurrent": Recurrent,
    "parametrized": lambda: weight_norm(nn.Linear(4, 4)),
    "plain": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_computes_with_what_it_holds(name):
    model, inputs = made(MODELS[name]).eval(), torch.linspace(-1, 1, 12).reshape(3, 4)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    other = {n: t.detach() * 1.5 + (0.25 if t.is_floating_point() else 1) for n, t in own.items()}
    before = {n: t.detach().clone() for n, t in own.items()}
    with torch.no_grad():
        # Of a copy: on a layer with two names torch forgets to take its tensors back.
        expected = functional_call(deepcopy(model), other, (inputs,))
        with Slots(model).holding(other):
            assert torch.equal(model(inputs), expected)
        assert not torch.equal(model(inputs), expected)
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert all(after[n] is own[n] for n in own)
    assert all(torch.equal(after[n], before[n]) for n in own)


def test_buffers_have_the_names_torch_gives_them():
    model = made(Tied)
    assert {n: id(b) for n, b in Slots(model).buffers().items()} == {
        n: id(b) for n, b in model.named_buffers()
    }


def test_a_failing_pass_gives_the_tensors_back():
    model = made(Tied)
    weight = model.first.weight

    def fail():
        with Slots(model).holding({"first.weight": torch.zeros(4, 4)}):
            assert float(model.second.weight.detach().abs().sum()) == 0.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert model.first.weight is weight
    assert model.second.weight is weight


@pytest.mark.parametrize("evaluator", [OneByOne, Batched, Incremental])
def test_a_layer_used_twice_is_searched_as_one(evaluator):
    layer = made(lambda: nn.Linear(3, 3)).double()
    problem = classify(nn.Sequential(layer, nn.Tanh(), layer), (3,), torch.float64)
    candidates = candidates_for(problem.model)
    losses = evaluator().losses(candidates, problem)
    for number in (0, 7, len(candidates) - 1):
        weight, bias = candidates.parameters(number).values()
        output = torch.tanh(problem.inputs @ weight.T + bias) @ weight.T + bias
        expected = problem.loss_fn(output, problem.target)
        assert float(losses[number]) == pytest.approx(float(expected), abs=1e-10)
    weight = layer.weight
    optimizer = PolyStep(problem.model, seed=0, evaluator=evaluator())
    for _ in range(3):
        optimizer.step(problem.inputs, problem.target, problem.loss_fn)
    assert layer.weight is weight
