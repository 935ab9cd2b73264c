"""A step takes the memory its evaluator is allowed, however long the forward pass runs."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hardstep.evaluation import Batched, Incremental, ModelObjective, OneByOne, Problem
from hardstep.evaluation.memory import LiveBytes
from hardstep.evaluation.trace.nodes import Refused
from hardstep.evaluation.trace.record import record
from hardstep.nn import SpikingNet
from hardstep.subspaces import RowWise

from .catalogue import around, candidates_for, classify, hand_losses, made, problem_of, right_losses

pytestmark = pytest.mark.slow

BUDGET = 200_000  # bytes: three candidates of `spiking` or so, and five of its time steps
REASON = "the forward pass keeps more than"


class Alive(TorchDispatchMode):
    """Counts storages made inside by asking each whether it still lives.

    Shares nothing with `LiveBytes`.
    """

    def __init__(self):
        super().__init__()
        self.made, self.at_most, self.peak = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {storage._cdata for storage in self._storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in self._storages(result):
            if storage._cdata not in given:
                self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self.at_most += storage.nbytes()
        if self.at_most > self.peak:  # else no need to ask
            self.peak = max(self.peak, self.now())
        return result

    def now(self):
        self.made = {key: kept for key, kept in self.made.items() if not kept[0].expired()}
        self.at_most = sum(nbytes for _, nbytes in self.made.values())
        return self.at_most

    @staticmethod
    def _storages(tree):
        with torch._C.DisableTorchFunction():
            return [t.untyped_storage() for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


class Branching(SpikingNet):
    """Looks at its result, so that it runs one candidate at a time."""

    def forward(self, inputs):
        counts = super().forward(inputs)
        return counts if (counts >= 0).all() else -counts


def spiking(num_steps, kind=SpikingNet):
    """A convolutional network on small images, at weights where it spikes."""

    def factory():
        first = nn.Conv2d(1, 4, 3, padding=1)
        second = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1))
        return kind([first, second, nn.Sequential(nn.Flatten(), nn.Linear(128, 3))], num_steps)

    problem = classify(made(factory), (1, 8, 8), torch.float64)
    with torch.no_grad():
        for parameter in problem.model.parameters():
            parameter.mul_(3.0)
    return problem


def some(problem, every=10, **settings):
    """Probes of some particles of every block."""
    everyone = len(candidates_for(problem.model, RowWise(2)).asked)
    asked = list(range(0, everyone, every))
    return candidates_for(problem.model, RowWise(2), asked=asked, **settings)


def step_peak(problem, evaluator, **settings):
    """(most bytes alive while a step's losses are computed, the losses)."""
    candidates = some(problem, **settings)
    with Alive() as alive:
        losses = ModelObjective(problem, evaluator).losses(candidates)
    return alive.peak, losses


@pytest.mark.parametrize("name", ["mlp", "conv-pool", "batchnorm", "dropout", "spiking", "argmax"])
def test_a_record_beyond_the_budget_is_not_kept_and_the_losses_are_the_same(name):
    problem = problem_of(name)
    candidates = candidates_for(problem.model, RowWise(2))
    evaluator = Incremental(memory_budget=300)
    right_losses(candidates, problem, evaluator)
    assert all(note.startswith(REASON) for note in evaluator.notes.values())
    assert "more than 0.0003 MB of values, the memory budget" in evaluator.note
    assert len(evaluator.notes) == len(candidates.subspace.blocks)


@pytest.mark.parametrize("kind", [SpikingNet, Branching])
def test_a_long_loop_over_time_gets_the_losses_of_plain_forward_passes(kind):
    problem = spiking(20, kind)
    candidates = some(problem, every=4)
    evaluator = Incremental(memory_budget=BUDGET)
    assert right_losses(candidates, problem, evaluator).unique().numel() > 20
    assert REASON in evaluator.note
    one_by_one = kind is Branching
    assert evaluator.fallback.note.startswith("one by one" if one_by_one else "batched")


def test_the_default_budget_keeps_a_small_model_incremental():
    problem = spiking(10)
    evaluator = Incremental()
    peak, _ = step_peak(problem, evaluator)
    assert set(evaluator.notes.values()) <= {"fused", "events", "gathered", "incremental"}
    assert peak > BUDGET  # so that the budget above does change something


@pytest.mark.parametrize("kind", [SpikingNet, Branching])
@pytest.mark.parametrize(
    ("runs", "growth"),
    [([(8, 10), (24, 10)], 1.3), ([(10, 16), (10, 4)], 1.1)],
    ids=["time steps", "particles"],
)
def test_memory_grows_neither_with_the_time_steps_nor_with_the_particles(runs, growth, kind):
    """Runs of (number of time steps, one particle of how many)."""
    peaks = [
        step_peak(spiking(num_steps, kind), Incremental(memory_budget=BUDGET), every=every)[0]
        for num_steps, every in runs
    ]
    assert max(peaks) < growth * min(peaks)
    assert max(peaks) < 1.3 * BUDGET


@pytest.mark.parametrize("evaluator", [Batched, OneByOne])
@pytest.mark.parametrize("budget", [BUDGET // 2, 4 * BUDGET])
def test_the_budget_sets_the_memory_of_the_fallbacks(evaluator, budget):
    problem = spiking(3, Branching if evaluator is OneByOne else SpikingNet)
    batched = Batched(memory_budget=budget)
    one, _ = step_peak(problem, evaluator(tile=1), every=40, vertices=20)
    peak, _ = step_peak(problem, batched, every=40, vertices=20)
    assert batched.note.startswith("one by one" if evaluator is OneByOne else "batched")
    assert one <= peak <= max(one, 1.05 * budget)
    if budget > 2 * one:
        assert peak > 1.2 * one  # what is allowed is used


def test_tiles_are_cut_by_what_is_alive_together_not_by_the_largest_value():
    def hoards(layer, inputs):
        kept = [layer(inputs + time) for time in range(40)]
        return sum(kept)

    problem = around(hoards)
    one, _ = step_peak(problem, Batched(tile=1), every=1, vertices=12)
    peak, losses = step_peak(problem, Batched(memory_budget=6 * one), every=1, vertices=12)
    assert 2 * one < peak <= 6 * one
    candidates = some(problem, every=1, vertices=12)
    torch.testing.assert_close(losses, hand_losses(candidates, problem), rtol=1e-10, atol=1e-10)


def test_nothing_of_a_refused_record_is_alive_when_the_fallback_begins():
    problem = spiking(12)
    alive, seen = Alive(), []

    class Watching(Batched):
        def losses(self, candidates, problem, spans=None):
            seen.append(alive.now())
            return super().losses(candidates, problem, spans)

    candidates = some(problem)
    evaluator = Incremental(BUDGET, fallback=Watching(memory_budget=BUDGET))
    with alive:
        ModelObjective(problem, evaluator).losses(candidates)
    # Losses of streamed tiles stay until all blocks have theirs; 280 bytes were seen here.
    assert max(seen) < 2_000
    assert alive.peak > BUDGET / 2


def test_nothing_of_a_failed_batch_is_alive_when_candidates_are_taken_one_by_one():
    def fails(layer, inputs):
        now.append(alive.now())
        hidden = layer(inputs)
        return hidden[:, :3] if (hidden[0, 0] < 1e9).item() else hidden[:, 3:6]

    alive, now = Alive(), []
    problem = around(fails, outputs=1000)
    with alive:
        few = candidates_for(problem.model, asked=[0, 1], vertices=32)
        losses = Batched().losses(few, problem)
    assert len(losses) < len(now)
    parameters = 8 * sum(parameter.numel() for parameter in problem.model.parameters())
    # One by one, 32 changed tensors and the losses so far; hidden values take 48 kB a candidate.
    assert max(now[-len(losses) :]) < 32 * parameters + 8 * len(losses)


@pytest.mark.parametrize(
    ("loss_fn", "nbytes"),
    [
        (lambda out: out.sum(), 8),
        (lambda out: out.view(-1)[5:].T.sum(), 8),  # views take nothing
        (lambda out: (out + 1).sum(), 64 * 3 * 8 + 8),
        (lambda out: out.add_(1).sum(), 64 * 3 * 8 + 8),  # the value before is kept
    ],
)
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_a_record_counts_each_storage_once_and_nothing_that_was_there_before(loss_fn, nbytes):
    layer = nn.Linear(1000, 3, bias=False).double()
    problem = Problem(layer, torch.ones(64, 1000, dtype=torch.float64), None, loss_fn)
    nbytes += 64 * 3 * 8  # the layer's output; weights and inputs are 24 and 512 kB
    base = dict(problem.model.named_parameters())
    with torch.no_grad():
        assert record(problem, base, 0, memory_budget=nbytes).nbytes == nbytes
        with pytest.raises(Refused, match=REASON):
            record(problem, base, 0, memory_budget=nbytes - 1)


def test_a_model_that_catches_the_refusal_is_not_recorded_either():
    def catches(layer, inputs):
        try:
            return layer(inputs)[:, :3]
        except Exception:
            return inputs

    # A view: nothing is made after the refusal that would be refused again.
    view = {"target": None, "loss_fn": lambda output: output[0, 0]}
    problem = dataclasses.replace(around(catches, outputs=50), **view)
    candidates = candidates_for(problem.model, RowWise(2))
    evaluator = Incremental(memory_budget=1_000)
    losses = ModelObjective(problem, evaluator).losses(candidates)
    expected = OneByOne().losses(candidates, problem)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-10)
    assert losses.unique().numel() > 1
    assert REASON in evaluator.note


@pytest.mark.parametrize("name", ["mlp", "conv-pool", "lstm", "attention", "spiking"])
def test_live_bytes_are_those_of_an_independent_count(name):
    problem = problem_of(name)
    base = {key: tensor.detach() for key, tensor in problem.model.named_parameters()}
    with LiveBytes() as live, Alive() as alive, torch.no_grad():
        kept = problem.loss(base, problem.buffers())
    assert live.peak == alive.peak > 100
    assert live.now == alive.now() == kept.untyped_storage().nbytes()
    del kept
    assert live.now == 0


def test_live_bytes_see_what_backpropagation_keeps_and_what_resizing_takes():
    weight = torch.ones(10, 10, requires_grad=True)
    with LiveBytes() as live:
        result = torch.empty(0)
        torch.add(weight.detach(), 1.0, out=result)
        assert live.now == 400
        loss = (weight * result).exp().sum()
        assert live.now == 2 * 400 + 4  # `result` and the exponential; the product is gone
        loss.backward()
        assert weight.grad is not None
    assert live.now == 2 * 400 + 4  # the gradient in place of the exponential
    assert live.peak > 3 * 400
