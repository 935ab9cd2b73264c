"""Every evaluator returns the losses of plain forward passes, and leaves no trace."""

import copy

import pytest
import torch

from hardstep.evaluation import Batched, ClosureObjective, Incremental, ModelObjective, OneByOne

from .catalogue import MODELS, SUBSPACES, candidates_for, hand_losses, problem_of

EACH_MODEL = pytest.mark.parametrize("model", MODELS)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
# torch has no batching rule for its recurrent layers.
LOOPED = ("lstm", "gru")
# Three of the nine subspaces with every model, each of them with a third of the models.
PAIRS = [
    (list(SUBSPACES)[(number + 3 * turn) % len(SUBSPACES)], model)
    for number, model in enumerate(MODELS)
    for turn in range(3)
]


def assert_losses(found, expected, dtype):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found.to(dtype), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_evaluators_agree_with_a_loop_of_forward_passes(name, model):
    problem = problem_of(model)
    candidates = candidates_for(problem.model, SUBSPACES[name], dim=5, scale=1.0)
    expected = hand_losses(candidates, problem)
    assert len(expected) == len(candidates)
    assert float(expected.std()) > 1e-4  # else agreement would mean little
    batched = Batched()
    for evaluator in (batched, OneByOne(), Incremental()):
        losses = ModelObjective(problem, evaluator).losses(candidates)
        assert losses.shape == (len(candidates),)
        assert_losses(losses, expected, torch.float64)
    assert batched.note.startswith("one by one" if model in LOOPED else "batched")


@pytest.mark.slow
@pytest.mark.parametrize("model", list(MODELS)[::2])
def test_evaluators_agree_in_single_precision(model):
    problem = problem_of(model, torch.float32)
    candidates = candidates_for(problem.model, SUBSPACES["rows"])
    expected = hand_losses(candidates, problem)
    for evaluator in (Batched(), OneByOne(), Incremental()):
        losses = ModelObjective(problem, evaluator).losses(candidates)
        assert losses.dtype == torch.float32
        assert_losses(losses, expected, torch.float32)


@EACH_MODEL
def test_a_closure_over_the_model_finds_the_same_losses(model):
    problem = problem_of(model)
    candidates = candidates_for(problem.model, SUBSPACES["layers"])
    closure = ClosureObjective(
        lambda: problem.loss_fn(problem.model(problem.inputs), problem.target), problem.model
    )
    expected = hand_losses(candidates, problem)
    assert_losses(closure.losses(candidates), expected, torch.float64)


@EACH_MODEL
@pytest.mark.parametrize(
    "evaluator",
    [Batched(), OneByOne(), Incremental(), None],
    ids=["batched", "one", "incremental", "closure"],
)
def test_an_evaluation_leaves_no_trace(evaluator, model):
    problem = problem_of(model, torch.float32)
    module = problem.model
    candidates = candidates_for(module, SUBSPACES["rows"])
    objective = (
        ClosureObjective(lambda: problem.loss_fn(module(problem.inputs), problem.target), module)
        if evaluator is None
        else ModelObjective(problem, evaluator)
    )
    values = copy.deepcopy(module.state_dict())
    identities = {name: id(t) for name, t in module.state_dict(keep_vars=True).items()}
    attributes = [dict(vars(m)) for m in module.modules()]
    generator = torch.get_rng_state()
    losses = objective.losses(candidates)
    assert not losses.requires_grad
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(t, values[name]) for name, t in module.state_dict().items())
    assert {n: id(t) for n, t in module.state_dict(keep_vars=True).items()} == identities
    for submodule, before in zip(module.modules(), attributes, strict=True):
        assert vars(submodule).keys() == before.keys()
        assert all(vars(submodule)[key] is value for key, value in before.items())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("model", ["dropout", "attention-dropout"])
@pytest.mark.parametrize(
    "evaluator", [Batched(), OneByOne(), Incremental()], ids=["batched", "one", "incremental"]
)
def test_all_candidates_of_a_step_share_their_random_numbers(evaluator, model):
    problem = problem_of(model)
    still = [candidates_for(problem.model, seed=seed, scale=0.0) for seed in (7, 7, 8)]
    first, again, other = (ModelObjective(problem, evaluator).losses(c) for c in still)
    torch.testing.assert_close(first, first[:1].expand_as(first), rtol=0, atol=1e-14)
    assert torch.equal(first, again)
    assert float((first - other).abs().min()) > 1e-6


@pytest.mark.parametrize(("dim", "shape"), [(1, (3, 2)), (2, (1, 1)), (8, (2, 1))], ids=str)
def test_the_shape_of_the_probes_does_not_matter(dim, shape):
    problem = problem_of("mlp")
    candidates = candidates_for(
        problem.model, SUBSPACES["rows"], dim=dim, vertices=shape[0], probes=shape[1]
    )
    expected = hand_losses(candidates, problem)
    for evaluator in (Batched(), Batched(tile=5), OneByOne(tile=3), Incremental()):
        losses = ModelObjective(problem, evaluator).losses(candidates)
        assert_losses(losses, expected, torch.float64)


def test_only_the_particles_asked_about_are_evaluated():
    problem = problem_of("mlp")
    everything = candidates_for(problem.model)
    asked = [0, 3, 4, 9]
    some = candidates_for(problem.model, asked=asked)
    some.offsets.copy_(everything.offsets[asked])
    expected = hand_losses(everything, problem).reshape(-1, 2)[asked].reshape(-1)
    for evaluator in (Batched(), OneByOne(), Incremental()):
        assert_losses(ModelObjective(problem, evaluator).losses(some), expected, torch.float64)
