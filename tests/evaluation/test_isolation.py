from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from hardstep.evaluation import Batched, ClosureObjective, ModelObjective, OneByOne, isolated

from .catalogue import candidates_for, classify, made


class ReadOnly(dict):
    """A configuration that cannot be changed, hence need not be restored."""

    def update(self, *args, **kwargs):
        raise TypeError("read-only")

    clear = update


class Stateful(nn.Module):
    """Keeps state in every way a module can: rebound, in place, in containers, in buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("rebound", torch.zeros(3))
        self.hidden = None
        self.trace = torch.zeros(3, dtype=torch.float64)
        self.log, self.recent = ["start"], deque([0], maxlen=2)
        self.table, self.kinds = {"calls": 0}, set()
        self.settings = ReadOnly(width=3)

    def forward(self, inputs):
        output = self.layer(inputs)
        if self.hidden is not None:
            output = output + self.hidden
        output = output + self.trace + self.table["calls"] + len(self.log) + self.seen
        self.hidden = output
        self.trace.mul_(0.5).add_(1.0)
        self.trace += output.mean(dim=0)
        self.log.append(output)
        self.recent.append(output)
        self.table["calls"] += 1
        self.kinds.add("called")
        self.seen.add_(1.0)
        self.rebound = self.rebound + 1.0
        self.eval()
        return output


def assert_untouched(model):
    assert model.hidden is None
    assert torch.equal(model.trace, torch.zeros(3, dtype=torch.float64))
    assert model.log == ["start"]
    assert list(model.recent) == [0]
    assert model.recent.maxlen == 2
    assert model.table == {"calls": 0}
    assert model.kinds == set()
    assert model.settings == {"width": 3}
    assert float(model.seen) == 0.0
    assert torch.equal(model.rebound, torch.zeros_like(model.rebound))
    assert model.training
    assert model.layer.training


@pytest.mark.parametrize("kind", ["batched", "one", "closure"])
def test_every_candidate_meets_the_model_as_it_was_and_so_does_the_user(kind):
    problem = classify(made(Stateful), (3,), torch.float64)
    model = problem.model
    candidates = candidates_for(model)
    closure = ClosureObjective(
        lambda: problem.loss_fn(model(problem.inputs), problem.target), model
    )
    objective = {
        "batched": ModelObjective(problem, Batched()),
        "one": ModelObjective(problem, OneByOne()),
        "closure": closure,
    }[kind]
    losses = objective.losses(candidates)
    assert_untouched(model)
    for number in (0, 5, len(candidates) - 1):
        tensors = candidates.parameters(number)
        output = problem.inputs @ tensors["layer.weight"].T + tensors["layer.bias"] + 1
        expected = problem.loss_fn(output, problem.target)
        assert float(losses[number]) == pytest.approx(float(expected), abs=1e-10)


def test_a_failing_block_is_undone_too():
    model = made(Stateful).double()
    before = torch.get_rng_state()

    def fail():
        with isolated(model):
            model(torch.ones(2, 3, dtype=torch.float64))
            torch.rand(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    model.seen.zero_()  # buffers changed in place are the evaluators' business: they pass copies
    assert_untouched(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_attributes_added_inside_are_gone_afterwards():
    model = nn.Linear(2, 2)
    with isolated(model):
        model.note = "here"
        model.bias_correction = torch.ones(2)
    assert not hasattr(model, "note")
    assert not hasattr(model, "bias_correction")


def test_tensors_that_were_not_written_to_are_not_touched():
    model = nn.Linear(2, 2)
    model.table = torch.ones(2)
    model.constant = np.ones(2)
    with torch.inference_mode():
        model.inferred = torch.ones(2)
    version = model.table._version
    with isolated(model):
        model(torch.ones(1, 2) * model.table)
    assert model.table._version == version


def test_the_global_generator_goes_on_where_it_was():
    model = made(lambda: nn.Linear(2, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = torch.rand(2)
        torch.manual_seed(3)
        with isolated(model):
            torch.rand(100)
        assert torch.equal(torch.rand(2), expected)
