"""EGGROLL's members without their weights: the losses of plain forward passes, for any model."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from hardstep.baselines.gradient_free import Moves
from hardstep.baselines.low_rank import LARGE, Factored, FactoredMembers, FactoredWeight, Factors
from hardstep.evaluation import Batched, ModelObjective, OneByOne, Problem
from hardstep.subspaces import Layout, trainable

WIDE, HIDDEN, CLASSES = 160, 120, 5
assert WIDE * HIDDEN >= LARGE


class Holder(nn.Module):
    """A weight and a layer, which a function uses in other ways than `nn.Linear` does."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(HIDDEN, WIDE) / WIDE**0.5)
        self.last, self.function = nn.Linear(HIDDEN, CLASSES), function

    def forward(self, x):
        return self.function(x, self.weight, self.last)


def rounded(x, weight, last):
    weight = torch.round(weight * 64) / 64
    return last(torch.relu(functional.linear(x, weight)))


def by_name(x, weight, last):
    assert weight.shape == (HIDDEN, WIDE)
    assert weight.dim() == 2
    return last(torch.relu(functional.linear(input=x, weight=weight)))


def twice(x, weight, last):
    """The weight in a linear layer, its transpose in the next and its norm in the output."""
    hidden = torch.tanh(functional.linear(x, weight))
    again = torch.tanh(functional.linear(hidden, weight.t()))
    return last(functional.linear(again, weight)) * weight.norm()


def as_input(x, weight, last):
    """Where what is linearly mapped is the weight itself, once by itself."""
    mixed = functional.linear(weight, last.weight.new_ones(WIDE, WIDE) / WIDE)
    return last(x @ mixed.T) * functional.linear(weight, weight).norm()


def unseen(x, weight, last):
    """Asks torch not to tell anyone that a tensor is not an ordinary one."""
    with torch._C.DisableTorchFunctionSubclass():
        return last(torch.relu(functional.linear(x, weight)))


def per_example(x, weight, last):
    """Maps over its examples itself."""
    hidden = torch.func.vmap(lambda one: functional.linear(one, weight))(x)
    return last(torch.relu(hidden))


def deep():
    """A large layer whose input differs from member to member."""
    middle = nn.Linear(HIDDEN, 512, bias=False)
    return nn.Sequential(
        nn.Linear(WIDE, HIDDEN), nn.Tanh(), middle, nn.Tanh(), nn.Linear(512, CLASSES)
    )


class Sequence(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.last = cell, nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        out = self.cell(x.reshape(-1, 2, WIDE))
        return self.last(out[0][:, -1] if isinstance(out, tuple) else out.mean(1))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDE, 4, batch_first=True)
        self.last = nn.Linear(WIDE, CLASSES)

    def forward(self, x):
        x = x.reshape(-1, 2, WIDE)
        return self.last(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Counting(nn.Module):
    """Hard in the middle: how often a leaky sum crosses 1 in six steps."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        current, level, count = self.first(x), 0.0, 0.0
        for _ in range(6):
            level = 0.9 * level + current
            fired = (level >= 1).to(x.dtype)
            level, count = level * (1 - fired), count + fired
        return self.last(count)


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(WIDE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)),
    "deep": deep,
    "product": lambda: Holder(lambda x, weight, last: last(torch.relu(x @ weight.T))),
    "rounded": lambda: Holder(rounded),
    "names": lambda: Holder(by_name),
    "twice": lambda: Holder(twice),
    "input": lambda: Holder(as_input),
    "unseen": lambda: Holder(unseen),
    "examples": lambda: Holder(per_example),
    "spikes": Counting,
    "norm": lambda: nn.Sequential(
        nn.Linear(WIDE, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.Linear(HIDDEN, CLASSES)
    ),
    "sequence": lambda: Sequence(nn.Linear(WIDE, HIDDEN)),
    "lstm": lambda: Sequence(nn.LSTM(WIDE, HIDDEN, batch_first=True)),
    "attention": Attending,
}
FALLS_BACK = ("unseen", "lstm")  # torch has no batching rule for an LSTM


def case(name, rank, batch=6, dtype=torch.float64):
    torch.manual_seed(3)
    model = MODELS[name]().to(dtype)
    each = 2 if name in ("sequence", "lstm", "attention") else 1
    inputs = torch.randn(each * batch, WIDE)
    target = torch.randint(0, CLASSES, (batch,))
    problem = Problem(model, inputs.to(dtype), target, functional.cross_entropy)
    tensors = trainable(model)
    space = Factored(rank).bind(Layout(tensors), 8, 0)
    offsets = 0.3 * torch.randn(7, space.dim, dtype=dtype)
    return Moves(space, FactoredMembers).candidates(tensors, offsets, seed=1), problem


def factored(candidates):
    """The tensors whose changes are kept as factors; all are packed one way or the other."""
    packed = candidates.pack(next(candidates.spans()))
    assert set(packed) == set(candidates.base)
    return {name for name, change in packed.items() if isinstance(change, Factors)}


def losses(evaluator, candidates, problem):
    return ModelObjective(problem, evaluator).losses(candidates).double()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("batch", "rank"), [(6, 3), (300, 1)])
def test_losses_are_those_of_plain_forward_passes(name, batch, rank):
    candidates, problem = case(name, rank, batch)
    assert factored(candidates)
    plain = losses(OneByOne(), candidates, problem)
    assert plain.std() > 1e-3  # members differ, so that mixing them up would be seen
    for evaluator in (Batched(), Batched(tile=3)):
        found = losses(evaluator, candidates, problem)
        assert found.tolist() == pytest.approx(plain.tolist(), rel=1e-9)
        assert (evaluator.note == "batched") == (name not in FALLS_BACK)


def test_the_weights_of_members_are_not_computed_where_layers_are_linear(monkeypatch):
    def refuse(self):
        raise AssertionError("a whole weight was asked for")

    monkeypatch.setattr(FactoredWeight, "whole", refuse)
    for name in ("mlp", "deep", "names", "spikes", "sequence", "examples"):
        evaluator = Batched()
        losses(evaluator, *case(name, 1))
        assert evaluator.note == "batched"


def test_a_model_that_hides_what_it_does_is_evaluated_one_by_one():
    evaluator = Batched()
    losses(evaluator, *case("unseen", 1))
    assert evaluator.note.startswith("one by one: TypeError")
    assert "low-rank factors" in evaluator.note


def test_small_weights_and_half_precision_are_whole():
    candidates, _ = case("mlp", 1, dtype=torch.bfloat16)
    assert not factored(candidates)
    candidates, _ = case("mlp", 1)
    assert factored(candidates) == {"0.weight"}


def test_a_tile_of_one_and_inputs_of_three_dimensions_keep_their_shape():
    weight, x = torch.randn(4, 3).double(), torch.randn(2, 5, 3).double()
    left, right = torch.randn(6, 4, 2).double(), torch.randn(6, 3, 2).double()
    seen = torch.func.vmap(
        lambda *factors: functional.linear(x, FactoredWeight(weight, Factors(*factors)))
    )
    for num in (1, 6):
        expected = x @ (weight + left[:num] @ right[:num].mT).mT[:, None]
        assert torch.allclose(seen(left[:num], right[:num]), expected)
