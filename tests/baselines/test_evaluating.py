"""Losses of moved parameter sets are those of plain forward passes, however they are found."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep import Batched, OneByOne
from hardstep.baselines.evaluating import Moves, losses_of
from hardstep.errors import ObjectiveError
from hardstep.evaluation import Incremental, ModelObjective, Problem
from hardstep.nn import build, mlp
from hardstep.subspaces import Layout, trainable
from tests.baselines.small import SEARCHERS, net, steps, weights
from tests.subspaces.catalogue import SUBSPACES

INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(12) % 3


def model_of(dropout=0.0, dtype=torch.float64):
    def factory():
        return nn.Sequential(mlp(5, 6, 3), nn.Dropout(dropout)).to(dtype)

    return build(factory, 0)


def moves_of(model, subspace=SUBSPACES["rows"], num=7):
    tensors = trainable(model)
    bound = subspace.bind(Layout(tensors), 8, 0)
    generator = torch.Generator().manual_seed(1)
    offsets = torch.randn(num, bound.dim, generator=generator, dtype=bound.layout.dtype)
    return bound, offsets


def found(model, evaluator, subspace=SUBSPACES["rows"], seed=4):
    bound, offsets = moves_of(model, subspace)
    problem = Problem(model, INPUTS.to(bound.layout.dtype), LABELS, cross_entropy)
    candidates = Moves(bound).candidates(trainable(model), offsets, seed)
    return losses_of(candidates, ModelObjective(problem, evaluator))


@pytest.mark.parametrize("name", SUBSPACES)
def test_losses_are_those_of_a_forward_pass_with_the_weights_moved(name):
    model = model_of()
    losses = found(model, Batched(), SUBSPACES[name])
    bound, offsets = moves_of(model, SUBSPACES[name])
    for offset, loss in zip(offsets, losses, strict=True):
        changes = bound.expand(offset)
        values = {n: p.detach() + changes[n] for n, p in model.named_parameters()}
        output = torch.func.functional_call(model, values, INPUTS.double())
        assert float(loss) == pytest.approx(float(cross_entropy(output, LABELS)), rel=1e-12)


EVALUATORS = {
    "one tile": Batched(),
    "tiles of 1": Batched(tile=1),
    "tiles of 3": Batched(tile=3),
    "little memory": Batched(memory_budget=1),
    "one by one": OneByOne(),
    "incremental": Incremental(),
}


@pytest.mark.parametrize("name", EVALUATORS)
def test_every_evaluator_and_tile_size_gives_the_same_losses_dropout_included(name):
    model = model_of(dropout=0.4)
    before = weights(model)
    expected = found(model, Batched(tile=7))
    assert torch.allclose(found(model, EVALUATORS[name]), expected, rtol=1e-12)
    assert expected.dtype == torch.float64
    assert not torch.allclose(found(model, EVALUATORS[name], seed=5), expected, rtol=1e-6)
    assert torch.equal(weights(model), before)


def test_a_model_that_cannot_be_batched_is_run_one_by_one():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3).double()

        def forward(self, inputs):
            scores = self.layer(inputs)
            return scores if float(scores.sum()) > 0 else 2 * scores

    evaluator = Batched()
    model = build(Branching, 0)
    assert torch.equal(found(model, evaluator), found(model, OneByOne()))
    assert "one candidate at a time" in evaluator.note


def test_an_objective_must_return_one_loss_per_set():
    class Wrong:
        def losses(self, candidates):
            return torch.zeros(len(candidates) + 1)

    bound, offsets = moves_of(model_of())
    candidates = Moves(bound).candidates(trainable(model_of()), offsets, 0)
    with pytest.raises(ObjectiveError, match="must return 7 losses, got \\(8,\\)"):
        losses_of(candidates, Wrong())


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_tile_size_does_not_change_a_run(name):
    models = [net().double() for _ in range(3)]
    for model, tile in zip(models, (None, 1, 3), strict=True):
        optimizer = SEARCHERS[name](model, evaluator=Batched(tile=tile))
        for number in range(3):
            generator = torch.Generator().manual_seed(number)
            inputs = torch.randn(32, 64, generator=generator, dtype=torch.float64)
            optimizer.step(inputs, torch.arange(32) % 10, cross_entropy)
    assert torch.allclose(weights(models[0]), weights(models[1]), atol=1e-9)
    assert torch.allclose(weights(models[0]), weights(models[2]), atol=1e-9)


def test_one_evaluator_serves_many_steps():
    evaluator = Batched()
    steps(SEARCHERS["eggroll"](net(), evaluator=evaluator), 3)
    assert evaluator.note == "batched"
