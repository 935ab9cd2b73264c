"""Incremental evaluation on models it was not written for, and on models built to deceive it."""

import subprocess
import sys
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Batched, Incremental, ModelObjective, Problem
from hardstep.evaluation.trace.record import record
from hardstep.nn import build
from hardstep.subspaces import Full, LayerWise, RowWise

from .catalogue import candidates_for, hand_losses, problem_of
from .random_models import ACTIVATIONS, LOSSES, PARTS, draw, is_tie

SUBSPACES = (RowWise(2), RowWise(None), Full(), LayerWise(1))
FAST = {"fused", "events", "gathered", "incremental"}
# The fewest that draw every part, and every activation and loss twice; `long_run` takes hundreds.
SEEDS = (0, 1, 3, 6, 7, 9, 11, 12, 14, 15, 17, 25, 28, 30, 38, 54, 78, 93, 103, 152, 349, 376, 519,
         576)  # fmt: skip


def compare(problem, subspace, dtype):
    """(worst relative difference, indices beyond tolerance, losses, evaluator)."""
    candidates = candidates_for(problem.model, subspace, dim=3, scale=0.7)
    evaluator = Incremental()
    found = ModelObjective(problem, evaluator).losses(candidates)
    expected = hand_losses(candidates, problem)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}[dtype]
    difference = (found - expected).abs() / expected.abs().clamp_min(1e-3)
    # Infinite or not a number: the same for both.
    right = (difference <= tolerance) | (found == expected) | (found.isnan() & expected.isnan())
    return candidates, found, (~right).nonzero().flatten().tolist(), evaluator


def check_losses(problem, names, subspace, dtype):
    """Losses agree; a loss that does not must be a proven tie."""
    candidates, found, wrong, evaluator = compare(problem, subspace, dtype)
    for number in wrong:
        parameters = candidates.parameters(number)
        assert is_tie(problem, parameters, found[number], problem.buffers()), (names, number)
    return evaluator, len(wrong)


@cache
def followed(seed, dtype=torch.float64):
    """How many blocks of a random model took a fast tier, and how many there are."""
    problem, names = draw(seed, dtype)
    subspace = SUBSPACES[seed % len(SUBSPACES)] if dtype == torch.float64 else RowWise(2)
    evaluator, _ = check_losses(problem, names, subspace, dtype)
    return sum(note in FAST for note in evaluator.notes.values()), len(evaluator.notes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_models_get_the_losses_of_plain_forward_passes(seed):
    assert followed(seed)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [60, 63, 67, 71, 78, 85])
def test_random_models_in_single_precision(seed):
    assert followed(seed, torch.float32)[1] > 0


def test_most_random_models_are_followed_and_every_part_is_drawn():
    drawn = {name for seed in SEEDS for name in draw(seed)[1]}
    assert set(PARTS) | set(ACTIVATIONS) | set(LOSSES) <= drawn
    fast, total = map(sum, zip(*(followed(seed) for seed in SEEDS), strict=True))
    assert fast >= 0.6 * total


def small(forward, **parts):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 4)

    Model.forward = forward
    return build(Model, 0).double()


def problem_with(forward, loss=F.cross_entropy):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(7, 6, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 4, (7,), generator=generator)
    return Problem(small(forward), inputs, target, loss)


def branches(self, x):
    h = self.a(x)
    if (h > 1).any():
        h = 2 * h
    return self.b(torch.relu(h))


def leaves_by_numpy(self, x):
    h = self.a(x).detach().numpy() ** 2
    return self.b(torch.from_numpy(h))


def leaves_by_array(self, x):
    import numpy as np

    return self.b(torch.as_tensor(np.tanh(np.asarray(self.a(x).detach()))))


def leaves_by_list(self, x):
    return self.b(torch.tensor(self.a(x).tolist(), dtype=x.dtype))


def uses_an_item(self, x):
    return self.b(self.a(x) * float(self.a.weight.sum().item()))


def writes_through_a_view(self, x):
    h = self.a(x)
    h[:, 0] = 0.5 * h[:, 1]
    return self.b(h)


def writes_by_mask(self, x):
    h = self.a(x)
    h[h < 0] = 0.0
    return self.b(h)


def writes_to_a_view_alone(self, x):
    """The original is never looked at again, so this can be followed."""
    return self.b(self.a(x).view(-1, 5).relu_())


def writes_after_reading(self, x):
    h = self.a(x)
    kept = h * 2
    h.add_(1.0)
    return self.b(kept + h)


def writes_to_one_of_two_equal_products(self, x):
    """The second is answered from memory, and must not be the tensor that was written to."""
    h = self.a(x).mul_(2.0)
    again = self.a(x)
    h.add_(again)
    return self.b(h * self.a(x) + again.sub_(1.0))


def caches_on_the_module(self, x):
    self.seen = self.a(x)
    return self.b(self.seen)


def transposes_the_batch(self, x):
    return self.b(torch.softmax(self.a(x).T, dim=1).T)


def permutes_examples(self, x):
    h = self.a(x)
    return self.b(h[torch.arange(len(x) - 1, -1, -1)] + h.flip(0))


def is_square(self, x):
    """As many features as examples: axes must not be confused."""
    h = self.a(x)[:5]
    return self.b(torch.cat([h @ h, h.T, h[:2], h[:5]]))[:7] * 1.0


class Stepped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad


def surrogate(self, x):
    return self.b(Stepped.apply(self.a(x)))


TRICKS = {
    f.__name__: f
    for f in (
        branches,
        leaves_by_numpy,
        leaves_by_array,
        leaves_by_list,
        uses_an_item,
        writes_through_a_view,
        writes_by_mask,
        writes_to_a_view_alone,
        writes_after_reading,
        writes_to_one_of_two_equal_products,
        caches_on_the_module,
        transposes_the_batch,
        permutes_examples,
        is_square,
        surrogate,
    )
}
MUST_FALL_BACK = {"branches", "leaves_by_numpy", "leaves_by_array", "leaves_by_list",
                  "uses_an_item", "writes_through_a_view"}  # fmt: skip
MUST_BE_FOLLOWED = {
    "writes_to_a_view_alone",
    "writes_after_reading",
    "writes_to_one_of_two_equal_products",
    "caches_on_the_module",
    "surrogate",
}


def test_every_trick_that_has_to_be_followed_or_not_is_tried():
    assert set(TRICKS) >= MUST_FALL_BACK | MUST_BE_FOLLOWED


@pytest.mark.parametrize("name", TRICKS)
@pytest.mark.parametrize("subspace", [RowWise(2), Full()], ids=["rows", "full"])
def test_a_model_that_deceives_the_record_still_gets_the_right_losses(name, subspace):
    problem = problem_with(TRICKS[name])
    _, _, wrong, evaluator = compare(problem, subspace, torch.float64)
    assert not wrong
    first = evaluator.notes[next(iter(evaluator.notes))]
    if name in MUST_FALL_BACK:
        assert first not in FAST
    if name in MUST_BE_FOLLOWED:
        assert first in FAST


def test_a_branch_on_values_no_parameter_reaches_is_no_reason_to_fall_back():
    def looks_at_inputs(self, x):
        return self.b(torch.relu(self.a(x if x.sum() > 0 else -x)))

    problem = problem_with(looks_at_inputs)
    _, _, wrong, evaluator = compare(problem, RowWise(2), torch.float64)
    assert not wrong
    assert set(evaluator.notes.values()) <= FAST


def item_of_labels(o, t):
    return F.cross_entropy(o, t) * (t == 1).sum().item()


def branch_on_labels(o, t):
    return F.cross_entropy(o, t) if t.max() > 2 else o.sum()


def list_of_labels(o, t):
    counts = torch.tensor([t.tolist().count(label) + 1.0 for label in range(4)])
    return F.cross_entropy(o, t, weight=counts.to(o))


def array_of_labels(o, t):
    return F.cross_entropy(o, t) / (1 + t.numpy().max()) + torch.tensor([t.max(), t.min()]).sum()


def item_of_a_mask(o, t):
    each = F.cross_entropy(o, t, reduction="none")
    return (each * (t > 0)).sum() / (t > 0).sum().item()


@pytest.mark.parametrize(
    "loss", [item_of_labels, branch_on_labels, list_of_labels, array_of_labels, item_of_a_mask]
)
@pytest.mark.parametrize("evaluator", [Incremental, Batched])
def test_labels_that_reach_python_are_no_reason_to_fall_back(loss, evaluator):
    problem = problem_with(lambda self, x: self.b(torch.relu(self.a(x))), loss)
    candidates = candidates_for(problem.model, RowWise(2), dim=3, scale=0.7)
    used = evaluator()
    found = ModelObjective(problem, used).losses(candidates)
    torch.testing.assert_close(found, hand_losses(candidates, problem), rtol=1e-10, atol=1e-10)
    if evaluator is Batched:
        assert used.note == "batched"
    else:
        assert set(used.notes.values()) <= FAST


def test_a_number_that_python_reads_is_followed_from_batch_to_batch():
    """The same kernel serves every number: it is not written into it."""

    def scales(self, x):
        h = self.b(torch.relu(self.a(x)) * (1 + (x > 0).sum().item()))
        return (h - x.mean().item()) / 3 * (h > x.sum().item())

    problem, evaluator, signatures = problem_with(scales), Incremental(), set()
    candidates = candidates_for(problem.model, RowWise(2), dim=3, scale=0.7)
    for shift in (0.0, 0.3, 0.7):
        moved = Problem(problem.model, problem.inputs + shift, problem.target, problem.loss_fn)
        found = ModelObjective(moved, evaluator).losses(candidates)
        torch.testing.assert_close(found, hand_losses(candidates, moved), rtol=1e-10, atol=1e-10)
        signatures.add(record(moved, candidates.base, candidates.seed).signature)
    assert set(evaluator.notes.values()) == {"fused"}
    assert len(signatures) == 1


def test_the_reason_for_falling_back_is_given():
    for name, word in (("branches", "reaches Python"), ("leaves_by_numpy", "numpy")):
        problem = problem_with(TRICKS[name])
        _, _, _, evaluator = compare(problem, RowWise(2), torch.float64)
        assert word in evaluator.note


@pytest.mark.parametrize("model", ["mlp", "spiking", "quantized"])
def test_the_memory_budget_does_not_change_a_bit(model):
    problem = problem_of(model, torch.float32)
    candidates = candidates_for(problem.model, RowWise(2))
    losses = [
        ModelObjective(problem, Incremental(memory_budget=budget)).losses(candidates)
        for budget in (1 << 20, 1 << 24, 1 << 30)
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])


def test_candidates_that_change_nothing_get_the_base_loss_exactly():
    problem = problem_of("quantized")
    candidates = candidates_for(problem.model, RowWise(2), scale=0.0)
    losses = ModelObjective(problem, Incremental()).losses(candidates)
    base = problem.loss(candidates.base, problem.buffers())
    assert torch.equal(losses, base.detach().expand_as(losses))


def test_a_genuine_fault_of_the_model_is_the_models_own_error():
    def broken(self, x):
        return self.b(x)

    problem = problem_with(broken)
    candidates = candidates_for(problem.model, RowWise(2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ModelObjective(problem, Incremental()).losses(candidates)


@pytest.mark.slow
def test_torchs_compiler_is_not_loaded_for_watching_a_forward_pass():
    """It takes longer to import than most first steps."""
    code = """
import sys, torch
from torch import nn
from hardstep import PolyStep
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
optimizer = PolyStep(model)
optimizer.step(torch.ones(5, 4), torch.zeros(5, dtype=torch.long), nn.functional.cross_entropy)
print(optimizer.evaluator.note, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fused", "False"]
