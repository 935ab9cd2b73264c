"""What a problem hands to its model and its loss."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from hardstep.evaluation import Batched, ModelObjective, OneByOne, Problem

from .catalogue import candidates_for, generator, made, problem_of

EVALUATORS = pytest.mark.parametrize("evaluator", [Batched(), OneByOne()], ids=["batched", "one"])


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x, y, scale=1.0):
        return scale * self.left(x) + self.right(y)


@EVALUATORS
def test_inputs_may_be_a_tuple_a_list_or_keywords(evaluator):
    model = made(TwoInputs).double()
    x, y = (torch.randn(5, n, generator=generator(n), dtype=torch.float64) for n in (3, 4))
    labels = torch.tensor([0, 1, 0, 1, 1])
    candidates = candidates_for(model)
    results = [
        ModelObjective(Problem(model, inputs, labels, F.cross_entropy), evaluator).losses(
            candidates
        )
        for inputs in ((x, y), [x, y], {"x": x, "y": y}, {"y": y, "x": x, "scale": 1.0})
    ]
    assert all(torch.equal(result, results[0]) for result in results)
    scaled = Problem(model, {"x": x, "y": y, "scale": 3.0}, labels, F.cross_entropy)
    other = ModelObjective(scaled, evaluator).losses(candidates)
    assert float((other - results[0]).abs().min()) > 1e-6


@EVALUATORS
def test_a_named_tuple_is_one_input(evaluator):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, packed):
            assert isinstance(packed, PackedSequence)
            return self.layer(packed.data).mean()

    sequences = pack_sequence([torch.ones(3, 2), torch.zeros(1, 2)])
    model = made(Packed)
    candidates = candidates_for(model)
    problem = Problem(model, sequences, None, torch.square)
    expected = [
        float((t["layer.weight"].sum() * 0.75 + t["layer.bias"]).square())
        for t in map(candidates.parameters, range(len(candidates)))
    ]
    losses = ModelObjective(problem, evaluator).losses(candidates)
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@EVALUATORS
def test_without_a_target_the_loss_sees_the_output_alone(evaluator):
    problem = problem_of("mlp")
    candidates = candidates_for(problem.model)
    alone = dataclasses.replace(problem, target=None, loss_fn=lambda output: output.square().sum())
    zero = dataclasses.replace(
        problem,
        target=torch.zeros(6, 3, dtype=torch.float64),
        loss_fn=lambda output, target: (output - target).square().sum(),
    )
    first, second = (ModelObjective(p, evaluator).losses(candidates) for p in (alone, zero))
    assert torch.equal(first, second)


@EVALUATORS
def test_a_loss_that_looks_at_the_weights_sees_those_of_the_candidate(evaluator):
    problem = problem_of("tied")
    model = problem.model
    candidates = candidates_for(model)

    def decayed(output, target):
        return F.cross_entropy(output, target) + sum(p.square().sum() for p in model.parameters())

    plain = ModelObjective(problem, evaluator).losses(candidates)
    penalised = dataclasses.replace(problem, loss_fn=decayed)
    penalties = [
        sum(t.square().sum() for t in candidates.parameters(number).values())
        for number in range(len(candidates))
    ]
    losses = ModelObjective(penalised, evaluator).losses(candidates)
    torch.testing.assert_close(losses, plain + torch.stack(penalties), rtol=0, atol=1e-10)


@EVALUATORS
def test_embeddings_take_integer_inputs(evaluator):
    model = made(lambda: nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 3))).double()
    tokens = torch.randint(0, 7, (5, 2), generator=generator())
    labels = torch.tensor([0, 1, 2, 1, 1])
    candidates = candidates_for(model)
    losses = ModelObjective(Problem(model, tokens, labels, F.cross_entropy), evaluator).losses(
        candidates
    )
    for number in (0, 9, len(candidates) - 1):
        tensors = candidates.parameters(number)
        hidden = tensors["0.weight"][tokens].flatten(1)
        output = hidden @ tensors["2.weight"].T + tensors["2.bias"]
        assert float(losses[number]) == pytest.approx(
            float(F.cross_entropy(output, labels)), abs=1e-10
        )


@EVALUATORS
def test_gradients_are_neither_needed_nor_left_behind(evaluator):
    problem = problem_of("frozen")
    losses = ModelObjective(problem, evaluator).losses(candidates_for(problem.model))
    assert losses.grad_fn is None
    assert all(p.grad is None for p in problem.model.parameters())
