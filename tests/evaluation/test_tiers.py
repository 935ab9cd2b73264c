"""Which tier a block takes and what is told of it; a wrong one is found out and not used."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.evaluation.fused import Kernel
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.verify import find_contradiction
from hardstep.nn import build
from hardstep.subspaces import RowWise

from .catalogue import candidates_for


@pytest.fixture
def problem():
    model = build(lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), 0)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 6, generator=generator)
    return Problem(model, inputs, torch.arange(40) % 4, F.cross_entropy)


def spoil_kernels(monkeypatch):
    right = Kernel.sums
    spoilt = lambda *args: {index: 0.5 * total for index, total in right(*args).items()}  # noqa: E731
    monkeypatch.setattr(Kernel, "sums", spoilt)


def spoil_walks(monkeypatch):
    right = Walk.losses
    monkeypatch.setattr(Walk, "losses", lambda *args: right(*args) + 0.1)


def both_ways(problem):
    candidates = candidates_for(problem.model, RowWise(2))
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    return candidates, plain, Incremental()


def test_a_wrong_kernel_gives_way_to_operations_one_by_one(problem, monkeypatch):
    spoil_kernels(monkeypatch)
    candidates, plain, evaluator = both_ways(problem)
    objective = ModelObjective(problem, evaluator)
    with pytest.warns(RuntimeWarning, match="fused evaluation of [02].weight found .* defect"):
        losses = objective.losses(candidates)
    torch.testing.assert_close(losses, plain)
    torch.testing.assert_close(objective.losses(candidates), plain)  # and warns no more
    assert set(evaluator.notes.values()) == {"incremental"}
    reasons = {one.reason for one in evaluator.explain(candidates, problem).parameters}
    assert all(reason.startswith("a wrong fused loss: found ") for reason in reasons)


def test_wrong_rules_give_way_to_plain_forward_passes(problem, monkeypatch):
    spoil_kernels(monkeypatch)
    spoil_walks(monkeypatch)
    candidates, plain, evaluator = both_ways(problem)
    objective = ModelObjective(problem, evaluator)
    with pytest.warns(RuntimeWarning, match="hardstep.s (fused|incremental) evaluation"):
        losses = objective.losses(candidates)
    assert torch.equal(losses, plain)
    assert torch.equal(objective.losses(candidates), plain)
    assert all(note.startswith("a wrong incremental loss: ") for note in evaluator.notes.values())
    explanation = evaluator.explain(candidates, problem)
    assert {one.path for one in explanation.parameters} == {"one by one"}


def test_what_a_model_hides_from_the_record_is_found_out(problem):
    """The old constructor copies numbers where no record sees it."""

    def hidden(output, target):
        parts = [F.cross_entropy(output, target), output.pow(2).mean()]
        return torch.Tensor(parts).sum()

    problem = Problem(problem.model, problem.inputs, problem.target, hidden)
    candidates, plain, evaluator = both_ways(problem)
    with pytest.warns(RuntimeWarning, match=r"incremental evaluation of [02].weight found"):
        losses = ModelObjective(problem, evaluator).losses(candidates)
    assert torch.equal(losses, plain)


def test_nothing_is_compared_twice(problem, monkeypatch):
    candidates, _, evaluator = both_ways(problem)
    objective = ModelObjective(problem, evaluator)
    first = objective.losses(candidates)
    monkeypatch.setattr(OneByOne, "losses", lambda *args: pytest.fail("a plain forward pass"))
    assert torch.equal(objective.losses(candidates), first)


# -- what is told --------------------------------------------------------------------------------


class Layers(nn.Module):
    """Three linear layers, and what is done between them."""

    def __init__(self, first, second):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 4)
        self.first, self.second = first, second

    def forward(self, x):
        return self.c(self.second(self.b(self.first(self.a(x)))))


def evaluate_by_clock(problem, monkeypatch, layers, *seconds):
    """An evaluator after a step, of which each block took so many seconds."""
    problem = Problem(build(lambda: layers, 0), problem.inputs, problem.target, F.cross_entropy)
    times = (time for end, taken in enumerate(seconds) for time in (10 * end, 10 * end + taken))
    clock = SimpleNamespace(perf_counter=lambda: next(times))
    monkeypatch.setattr("hardstep.evaluation.opened.time", clock)
    evaluator = Incremental()
    ModelObjective(problem, evaluator).losses(candidates_for(problem.model, RowWise(2)))
    return evaluator


def look(x):
    return x if float(x.sum()) > 0 else -x


def test_nothing_is_told_before_the_first_step():
    assert (Incremental().note, Incremental().path) == ("not used yet", "")


def test_a_single_tier_is_a_word(problem, monkeypatch):
    evaluator = evaluate_by_clock(problem, monkeypatch, Layers(F.relu, F.relu), 3.0, 1.0, 1.0)
    assert (evaluator.note, evaluator.path) == ("fused", "fused")


def test_tiers_are_told_by_their_share_of_the_time_not_of_the_blocks(problem, monkeypatch):
    evaluator = evaluate_by_clock(problem, monkeypatch, Layers(torch.atan, F.relu), 7.0, 1.0, 2.0)
    assert evaluator.note == "incremental 70 % of the time, fused 30 %"
    assert evaluator.path == "incremental 70 %, fused 30 %"


def test_what_takes_no_time_worth_telling_is_left_out(problem, monkeypatch):
    evaluator = evaluate_by_clock(problem, monkeypatch, Layers(torch.atan, F.relu), 0.001, 1.0, 2.0)
    assert (evaluator.note, evaluator.path) == ("fused", "fused")


def test_a_block_on_a_slow_tier_is_named_with_its_reason(problem, monkeypatch):
    evaluator = evaluate_by_clock(problem, monkeypatch, Layers(look, torch.atan), 6.0, 3.0, 1.0)
    assert evaluator.path == "one by one 60 %, incremental 30 %, fused 10 %"
    shares = "one by one 60 % of the time, incremental 30 %, fused 10 %"
    reason = "a value that depends on it reaches Python through _local_scalar_dense"
    assert evaluator.note == (
        f"{shares}; whole forward passes for 1 of 3 blocks; a.weight: {reason}"
    )


def test_a_step_that_is_not_recorded_is_told_by_the_tier_that_it_took(problem):
    evaluator = Incremental(memory_budget=300)
    candidates = candidates_for(problem.model, RowWise(2))
    ModelObjective(problem, evaluator).losses(candidates)
    assert evaluator.path == "batched"
    assert evaluator.note.startswith("batched; whole forward passes for 2 of 2 blocks; 0.weight: ")


# -- contradictions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "seen"),
    [
        (lambda losses, base: losses + 3e-8, False),  # another order of summation
        (lambda losses, base: losses.index_put((torch.arange(4),), base + 1), False),  # four ties
        (lambda losses, base: losses.index_put((torch.arange(5),), base + 1), True),
        (lambda losses, base: base + 1.005 * (losses - base), False),  # a flip in all of them
        (lambda losses, base: base + 1.05 * (losses - base), True),
        (lambda losses, base: base.expand(len(losses)), True),  # a change that was not noticed
        (lambda losses, base: 2 * losses, True),
        (lambda losses, base: losses * float("nan"), True),
    ],
)
def test_what_counts_as_a_contradiction(problem, spoil, seen):
    candidates = candidates_for(problem.model, RowWise(2))
    span = next(candidates.spans())
    span = type(span)(span.block, span.start, span.start + 8)
    plain = OneByOne().losses(candidates, problem, [span])
    base = problem.loss(candidates.base, problem.buffers()).detach()
    found = find_contradiction(candidates, problem, span, spoil(plain, base), base)
    assert (found is not None) == seen


def test_losses_that_are_not_finite_agree_with_themselves(problem):
    candidates = candidates_for(problem.model, RowWise(2))
    span = next(candidates.spans())
    hopeless = Problem(problem.model, problem.inputs, None, lambda output: output.sum() / 0)
    plain = OneByOne().losses(candidates, hopeless, [span])
    assert not plain.isfinite().any()
    assert find_contradiction(candidates, hopeless, span, plain, plain[0]) is None


def test_a_network_that_carries_last_digits_far_is_not_accused():
    """Its plain forward passes disagree with themselves, by as much."""

    class Chaos(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.full((8,), 3.99))

        def forward(self, x):
            for _ in range(60):  # the logistic map doubles a difference at every turn
                x = self.rate * x * (1 - x)
            return x

    generator = torch.Generator().manual_seed(2)
    inputs = torch.rand(1, 8, generator=generator)
    problem = Problem(build(Chaos, 0), inputs, None, lambda output: output.sum())
    candidates = candidates_for(problem.model, RowWise(2), scale=1e-3)
    (span,) = candidates.spans()
    plain = OneByOne().losses(candidates, problem, [span])
    base = problem.loss(candidates.base, problem.buffers()).detach()
    shuffled = plain.roll(3)  # losses of the right kind, of the wrong candidates
    assert find_contradiction(candidates, problem, span, shuffled, base) is None
    assert find_contradiction(candidates, problem, span, plain + 20, base) is not None
