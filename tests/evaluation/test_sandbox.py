"""Forward passes leave no trace, and a model computes with the tensors it is given."""

import warnings
from collections import deque
from copy import deepcopy
from threading import Event, Thread

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import weight_norm

from hardstep import PolyStep
from hardstep.baselines import MeZo
from hardstep.errors import ConfigError
from hardstep.evaluation import (
    Batched,
    ClosureObjective,
    Incremental,
    ModelObjective,
    OneByOne,
    isolate,
)
from hardstep.evaluation.sandbox import Slots, run_vmap

from .catalogue import candidates_for, classify, made


class ReadOnly(dict):
    """A configuration that cannot be changed, hence need not be restored."""

    def update(self, *args, **kwargs):
        raise TypeError("read-only")

    clear = update


def _zeros():
    return torch.zeros(3, dtype=torch.float64)


class Stateful(nn.Module):
    """Keeps state in every way a module can: rebound, in place, in containers, in buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("rebound", torch.zeros(3))
        self.hidden = None
        self.trace = _zeros()
        self.log, self.recent = ["start"], deque([0], maxlen=2)
        self.table, self.kinds = {"calls": 0}, set()
        self.memories, self.queue = {"v": _zeros()}, [_zeros()]
        self.settings = ReadOnly(width=3)

    def forward(self, inputs):
        output = self.layer(inputs)
        if self.hidden is not None:
            output = output + self.hidden
        output = output + self.trace + self.table["calls"] + len(self.log) + self.seen
        output = output + 2 * self.memories["v"].add_(1.0) - self.queue[0].add_(1.0)
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
    assert torch.equal(model.trace, _zeros())
    assert model.log == ["start"]
    assert list(model.recent) == [0]
    assert model.recent.maxlen == 2
    assert model.table == {"calls": 0}
    assert torch.equal(
        torch.stack([model.memories["v"], *model.queue]), torch.stack([_zeros()] * 2)
    )
    assert model.kinds == set()
    assert model.settings == {"width": 3}
    assert float(model.seen) == 0.0
    assert torch.equal(model.rebound, torch.zeros_like(model.rebound))
    assert model.training
    assert model.layer.training


def assert_losses(losses, candidates, problem, function):
    """Losses are those of a function of (inputs, *parameters)."""
    for number in (0, 5, len(candidates) - 1):
        output = function(problem.inputs, *candidates.parameters(number).values())
        expected = problem.loss_fn(output, problem.target)
        assert float(losses[number]) == pytest.approx(float(expected), abs=1e-10)


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
    assert_losses(losses, candidates, problem, lambda x, w, b: x @ w.T + b + 2)


def test_a_failing_block_is_undone_too():
    model = made(Stateful).double()
    before = torch.get_rng_state()

    def fail():
        with isolate(model):
            model(torch.ones(2, 3, dtype=torch.float64))
            torch.rand(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    model.seen.zero_()  # buffers changed in place are the evaluators' business: they pass copies
    assert_untouched(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_attributes_added_inside_are_gone_and_the_global_generator_goes_on_where_it_was():
    model, before = nn.Linear(2, 2), torch.get_rng_state()
    with isolate(model):
        torch.rand(100)
        model.note = "here"
        model.bias_correction = torch.ones(2)
    assert not hasattr(model, "note")
    assert not hasattr(model, "bias_correction")
    assert torch.equal(torch.get_rng_state(), before)


def test_tensors_that_were_not_written_to_are_not_touched():
    model = nn.Linear(2, 2)
    model.table = torch.ones(2)
    model.constant = np.ones(2)
    with torch.inference_mode():
        model.inferred = torch.ones(2)
    version = model.table._version
    with isolate(model):
        model(torch.ones(1, 2) * model.table)
    assert model.table._version == version


# -- other tensors ------------------------------------------------------------------------------


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


class ListsItsWeights(nn.Module):
    """A layer of torch that keeps a list of its own weights."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 4, batch_first=True)

    def forward(self, inputs):
        return self.cell(inputs[:, None])[0]


HELD = {
    "tied": Tied,
    "recurrent": ListsItsWeights,
    "parametrized": lambda: weight_norm(nn.Linear(4, 4)),
    "plain": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
}


@pytest.mark.parametrize("name", HELD)
def test_the_model_computes_with_what_it_holds(name):
    model, inputs = made(HELD[name]).eval(), torch.linspace(-1, 1, 12).reshape(3, 4)
    named = {n: id(b) for n, b in model.named_buffers()}
    assert {n: id(b) for n, b in Slots(model).buffers().items()} == named  # torch's own names
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    other = {n: t.detach() * 1.5 + (0.25 if t.is_floating_point() else 1) for n, t in own.items()}
    before = {n: t.detach().clone() for n, t in own.items()}
    with torch.no_grad():
        # Of a copy: on a layer with two names torch forgets to take its tensors back.
        expected = functional_call(deepcopy(model), other, (inputs,))
        with Slots(model).hold(other):
            assert torch.equal(model(inputs), expected)
        assert not torch.equal(model(inputs), expected)
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert all(after[n] is own[n] for n in own)
    assert all(torch.equal(after[n], before[n]) for n in own)


def test_a_failing_pass_gives_the_tensors_back():
    model = made(Tied)
    weight = model.first.weight

    def fail():
        with Slots(model).hold({"first.weight": torch.zeros(4, 4)}):
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
    assert_losses(losses, candidates, problem, lambda x, w, b: torch.tanh(x @ w.T + b) @ w.T + b)
    weight = layer.weight
    optimizer = PolyStep(problem.model, seed=0, evaluator=evaluator())
    for _ in range(3):
        optimizer.step(problem.inputs, problem.target, problem.loss_fn)
    assert layer.weight is weight


# -- warnings -----------------------------------------------------------------------------------


class Unbatchable(nn.Module):
    """A histogram, for which torch has no batching rule, and a PReLU, whose rule resizes."""

    def __init__(self):
        super().__init__()
        self.layer, self.slopes = nn.Linear(3, 4), nn.Parameter(torch.rand(4))

    def forward(self, inputs):
        hidden = nn.functional.prelu(inputs[:, [0, 1, 2, 0]], self.slopes) + self.layer(inputs)
        return hidden[:, :3] * torch.histc(hidden, 3)


@pytest.mark.parametrize("evaluator", [Batched(), Incremental()], ids=["batched", "incremental"])
def test_what_torch_says_of_its_own_batching_rules_does_not_reach_the_user(evaluator, capfd):
    """Neither as a warning of Python's nor on standard error, where torch's own calls print."""
    problem = classify(made(Unbatchable), (3,), torch.float64)
    candidates = candidates_for(problem.model)
    before = list(warnings.filters)
    losses = ModelObjective(problem, evaluator).losses(candidates)
    assert evaluator.note in ("batched", "incremental")  # an error would have made it slower
    expected = OneByOne().losses(candidates, problem)
    torch.testing.assert_close(losses, expected.detach(), rtol=0, atol=1e-10)
    assert capfd.readouterr().err == ""
    assert warnings.filters == before


def test_warnings_are_back_when_the_last_thread_has_left():
    def count(inputs):
        return torch.histc(inputs, 3)

    stack, inside, leave = torch.rand(2, 5), Event(), Event()

    def wait(inputs):
        inside.set()
        assert leave.wait(30)
        return count(inputs)

    slow = Thread(target=run_vmap, args=(wait, stack))
    slow.start()
    assert inside.wait(30)
    run_vmap(count, stack)  # comes and goes while the other is still inside
    leave.set()
    slow.join()
    with pytest.warns(UserWarning, match="performance drop"):
        torch.func.vmap(count)(stack)


class Writing(nn.Module):
    """Writes to a searched and to a frozen parameter in its forward pass, or computes the same."""

    def __init__(self, writes, how="data"):
        super().__init__()
        self.layer, self.writes, self.how = nn.Linear(3, 2), writes, how
        self.count = nn.Parameter(torch.ones(()), requires_grad=False)

    def forward(self, inputs):
        weight, count = 1.1 * self.layer.weight, self.count + 1
        if self.writes:
            with torch.no_grad():
                own = self.layer.weight.data if self.how == "data" else self.layer.weight
                own.mul_(1.1)
                self.count.add_(1)
            weight, count = self.layer.weight, self.count
        return count * nn.functional.linear(inputs, weight, self.layer.bias)


@pytest.mark.parametrize("how", ["data", "itself"])
@pytest.mark.parametrize("kind", [Incremental, Batched, OneByOne])
def test_a_model_that_writes_to_its_weights_is_the_same_for_every_candidate(kind, how):
    x, y = torch.ones(6, 3) * torch.arange(6)[:, None], torch.arange(6) % 2
    writing, pure = (made(lambda writes=writes: Writing(writes, how)) for writes in (True, False))
    start = [p.detach().clone() for p in writing.parameters()]
    losses = []
    for model in (writing, pure):
        opt = PolyStep(model, evaluator=kind(), seed=1)
        losses.append(opt.evaluate(opt.propose(), x, y, cross_entropy))
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0)  # of float32
    assert all(map(torch.equal, writing.parameters(), start))


def test_a_closure_that_writes_to_the_weights_is_the_same_for_every_candidate():
    tensors = {"a": torch.ones(2), "b": torch.ones(3)}

    def write():
        loss = float(tensors["a"].sum() * tensors["b"].sum())
        for tensor in tensors.values():
            tensor.mul_(2)
        return loss

    opt = PolyStep(tensors, seed=1)
    pure = opt.evaluate(opt.propose(), lambda: tensors["a"].sum() * tensors["b"].sum())
    assert torch.equal(opt.evaluate(opt.propose(), write), pure)


def test_a_second_thread_is_told_that_the_model_is_in_use():
    inside, leave = Event(), Event()

    class Waiting(nn.Linear):
        def forward(self, inputs):
            if not inside.is_set():
                inside.set()
                leave.wait(10)
            return super().forward(inputs)

    model, data = Waiting(3, 2), (torch.ones(4, 3), torch.zeros(4).long(), cross_entropy)
    first, second = PolyStep(model), PolyStep(model)
    thread = Thread(target=first.step, args=data)
    thread.start()
    try:
        assert inside.wait(10)
        for use in (lambda: second.step(*data), lambda: PolyStep(model), lambda: MeZo(model)):
            with pytest.raises(ConfigError, match=r"evaluated by another thread.*deepcopy\(model"):
                use()
    finally:
        leave.set()
        thread.join()
    assert second.step(*data) > 0  # and is free again
