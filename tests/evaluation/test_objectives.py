"""What a problem, a closure and a vectorized function are given, and what they may return."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from hardstep.errors import ObjectiveError
from hardstep.evaluation import (
    Batched,
    ClosureObjective,
    FunctionObjective,
    ModelObjective,
    OneByOne,
    Problem,
)
from hardstep.subspaces import RowWise

from .catalogue import candidates_for, generator, made, parameter_sets, problem_of


def losses_of(evaluator, model, inputs, target, loss_fn=F.cross_entropy):
    problem = Problem(model, inputs, target, loss_fn)
    return ModelObjective(problem, evaluator).losses(candidates_for(model))


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
    expected, *same, other = (
        losses_of(evaluator, model, inputs, labels)
        for inputs in (
            (x, y),
            [x, y],
            {"x": x, "y": y},
            {"y": y, "x": x, "scale": 1.0},
            {"x": x, "y": y, "scale": 3.0},
        )
    )
    assert all(torch.equal(losses, expected) for losses in same)
    assert float((other - expected).abs().min()) > 1e-6


@EVALUATORS
def test_a_named_tuple_is_one_input(evaluator):
    class Packed(nn.Linear):
        def forward(self, packed):
            assert isinstance(packed, PackedSequence)
            return super().forward(packed.data).mean()

    sequences = pack_sequence([torch.ones(3, 2), torch.zeros(1, 2)])
    model = made(lambda: Packed(2, 1))
    expected = [
        float((t["weight"].sum() * 0.75 + t["bias"]).square())
        for t in parameter_sets(candidates_for(model))
    ]
    losses = losses_of(evaluator, model, sequences, None, torch.square)
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@EVALUATORS
def test_without_a_target_the_loss_sees_the_output_alone(evaluator):
    problem, zero = problem_of("mlp"), torch.zeros(6, 3, dtype=torch.float64)
    alone, with_target = (
        losses_of(evaluator, problem.model, problem.inputs, target, loss_fn)
        for target, loss_fn in (
            (None, lambda output: output.square().sum()),
            (zero, lambda output, target: (output - target).square().sum()),
        )
    )
    assert torch.equal(alone, with_target)


@EVALUATORS
def test_a_loss_that_looks_at_the_weights_sees_those_of_the_candidate(evaluator):
    problem = problem_of("tied")
    model = problem.model

    def decayed(output, target):
        return F.cross_entropy(output, target) + sum(p.square().sum() for p in model.parameters())

    plain, losses = (
        losses_of(evaluator, model, problem.inputs, problem.target, loss_fn)
        for loss_fn in (F.cross_entropy, decayed)
    )
    sets = parameter_sets(candidates_for(model))
    penalties = [sum(t.square().sum() for t in tensors.values()) for tensors in sets]
    torch.testing.assert_close(losses, plain + torch.stack(penalties), rtol=0, atol=1e-10)


@EVALUATORS
def test_embeddings_take_integer_inputs(evaluator):
    model = made(lambda: nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 3))).double()
    tokens = torch.randint(0, 7, (5, 2), generator=generator())
    labels = torch.tensor([0, 1, 2, 1, 1])
    losses = losses_of(evaluator, model, tokens, labels)
    for loss, tensors in zip(losses, parameter_sets(candidates_for(model)), strict=True):
        hidden = tensors["0.weight"][tokens].flatten(1)
        output = hidden @ tensors["2.weight"].T + tensors["2.bias"]
        assert float(loss) == pytest.approx(float(F.cross_entropy(output, labels)), abs=1e-10)


@EVALUATORS
def test_gradients_are_neither_needed_nor_left_behind(evaluator):
    problem = problem_of("frozen")
    losses = ModelObjective(problem, evaluator).losses(candidates_for(problem.model))
    assert losses.grad_fn is None
    assert all(p.grad is None for p in problem.model.parameters())


# -- closures and functions ---------------------------------------------------------------------

CENTER = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)


def tensors():
    return {"x": torch.zeros(4, dtype=torch.float64), "y": torch.ones((), dtype=torch.float64)}


def cost(x, y):
    """A step and a slope; x (…, 4), y (…)."""
    return (x - CENTER).square().sum(dim=-1) + (y > 1).double() + y


def expected_losses(candidates):
    return torch.stack([cost(t["x"], t["y"]) for t in parameter_sets(candidates)])


def test_a_closure_sees_each_candidates_values_in_the_tensors_themselves():
    live = tensors()
    candidates = candidates_for(live)
    losses = ClosureObjective(lambda: cost(live["x"], live["y"])).losses(candidates)
    assert losses.dtype == torch.float64
    torch.testing.assert_close(losses, expected_losses(candidates), rtol=0, atol=1e-12)


def test_a_function_of_stacked_tensors_gets_all_tensors_and_returns_all_losses():
    candidates = candidates_for(tensors())
    shapes = set()

    def function(stacked):
        shapes.add((stacked["x"].shape[1:], stacked["y"].shape[1:]))
        assert len(stacked["x"]) == len(stacked["y"])
        return cost(stacked["x"], stacked["y"])

    losses = FunctionObjective(function).losses(candidates)
    assert losses.dtype == torch.float64
    assert shapes == {((4,), ())}
    torch.testing.assert_close(losses, expected_losses(candidates), rtol=0, atol=1e-12)


@pytest.mark.parametrize("convert", [torch.Tensor.float, torch.Tensor.numpy, torch.Tensor.tolist])
def test_a_function_may_return_single_precision_an_array_or_a_list(convert):
    candidates = candidates_for(tensors())
    losses = FunctionObjective(lambda t: convert(cost(t["x"], t["y"]))).losses(candidates)
    assert losses.dtype == torch.float64
    torch.testing.assert_close(losses, expected_losses(candidates), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (lambda n: torch.zeros(()), r"\(\)"),
        (lambda n: torch.zeros(n + 1), r"\(5,\)"),
        (lambda n: torch.zeros(n, 1), r"\(4, 1\)"),
        (lambda n: 1.5, r"\(\)"),
        (lambda n: None, "None"),
        (lambda n: ["low"] * n, "low"),
    ],
    ids=["scalar", "longer", "column", "number", "nothing", "words"],
)
def test_a_function_that_returns_another_shape_is_told_both(value, seen):
    candidates = candidates_for({"x": torch.zeros(4)}, vertices=2)
    function = FunctionObjective(lambda stacked: value(len(stacked["x"])))
    message = rf"must return one loss per candidate, shape \(4,\), got .*{seen}"
    with pytest.raises(ObjectiveError, match=message):
        function.losses(candidates)


@pytest.mark.parametrize(
    "convert",
    [
        float,
        np.float32,
        torch.tensor,
        lambda v: torch.tensor([v], dtype=torch.bfloat16),
        lambda v: np.array([[v]]),
        lambda v: nn.Parameter(torch.tensor(v)),
        int,
        bool,
    ],
)
def test_a_closure_may_return_a_number_in_any_form(convert):
    losses = ClosureObjective(lambda: convert(1.0)).losses(candidates_for(tensors()))
    assert torch.equal(losses, torch.ones(len(losses), dtype=torch.float64))


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (torch.zeros(3), r"shape \(3,\)"),
        (np.zeros(2), r"shape \(2,\)"),
        (torch.zeros(0), r"shape \(0,\)"),
        (None, "None"),
        ([1.0, 2.0], r"\[1.0, 2.0\]"),
        ("high", "'high'"),
        ("3", "'3'"),
    ],
    ids=str,
)
def test_a_closure_that_returns_something_else_is_refused(value, seen):
    closure = ClosureObjective(lambda: value)
    with pytest.raises(ObjectiveError, match=rf"closure must return one number, got {seen}"):
        closure.losses(candidates_for(tensors()))


def normalized():
    return made(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))


@pytest.mark.parametrize("subspace", [None, RowWise(1)], ids=["full", "rows"])
@pytest.mark.parametrize("fails_at", [1, 2, 5, None])
def test_tensors_and_buffers_are_put_back_bit_for_bit_also_when_the_closure_fails(
    fails_at, subspace
):
    model, inputs, calls = normalized(), torch.ones(5, 3), []
    candidates = candidates_for(model, subspace)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def closure():
        calls.append(1)
        loss = model(inputs).square().mean()
        if len(calls) == fails_at:
            raise FloatingPointError("the simulator crashed")
        return loss

    objective = ClosureObjective(closure, model)
    if fails_at is None:
        assert len(objective.losses(candidates)) == len(calls) == len(candidates)
    else:
        with pytest.raises(FloatingPointError, match="the simulator crashed"):
            objective.losses(candidates)
        assert len(calls) == fails_at
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, kept[name])


def test_every_call_of_a_closure_starts_from_the_same_buffers_even_of_an_empty_container():
    class Odd(nn.ModuleList):
        """Falsy, for it holds no layers."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("count", torch.zeros(()))

    model = Odd()
    assert not model

    def closure():
        model.count += 1
        return float(model.weight.sum() + model.count)

    losses = ClosureObjective(closure, model).losses(candidates_for(model, scale=0.0))
    assert torch.equal(losses, torch.full_like(losses, 4.0))
    assert float(model.count) == 0.0


def test_all_calls_of_a_closure_share_their_random_numbers():
    closure = ClosureObjective(lambda: torch.rand(()))
    before = torch.get_rng_state()
    first, other = (closure.losses(candidates_for(tensors(), seed=seed)) for seed in (7, 8))
    assert len(set(first.tolist())) == 1
    assert first[0] != other[0]
    assert torch.equal(torch.get_rng_state(), before)


def test_tensors_that_require_gradients_are_written_and_restored():
    live = {"x": torch.zeros(3, requires_grad=True)}
    losses = ClosureObjective(lambda: live["x"].sum()).losses(candidates_for(live))
    assert float(losses.abs().min()) > 0
    assert live["x"].requires_grad
    assert torch.equal(live["x"], torch.zeros(3))
