"""Losses of moved parameter sets are those of plain forward passes, however they are found."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep import Batched, Full, OneByOne, RowWise
from hardstep.baselines import AdamTwin, Eggroll, MeZo, Spsa
from hardstep.baselines.gradient_free import Moves, evaluate
from hardstep.baselines.low_rank import Factored
from hardstep.errors import ObjectiveError
from hardstep.evaluation import Candidates, Incremental, ModelObjective, Problem, Span
from hardstep.evaluation.memory import LiveBytes
from hardstep.nn import build
from hardstep.subspaces import Layout, trainable
from hardstep.tasks.architectures import mlp
from tests.baselines.small import SEARCHERS, batches, net, weights
from tests.subspaces.catalogue import SUBSPACES, randn, tensors_of

INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(12) % 3


def moved(model, subspace=SUBSPACES["rows"], num=7, seed=4, scale=0.1):
    """Candidates that move everything, and how far they move."""
    tensors = trainable(model)
    space = subspace.bind(Layout(tensors), 8, 0)
    offsets = scale * randn(num, space.dim, seed=1).to(space.layout.dtype)
    return Moves(space).candidates(tensors, offsets, seed), space, offsets


def found(model, evaluator, seed=4):
    dtype = next(model.parameters()).dtype
    problem = Problem(model, INPUTS.to(dtype), LABELS, cross_entropy)
    return evaluate(moved(model, seed=seed, scale=1.0)[0], ModelObjective(problem, evaluator))


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
    model = build(lambda: nn.Sequential(mlp(5, 6, 3), nn.Dropout(0.4)).double(), 0)
    before = weights(model)
    expected = found(model, Batched(tile=7))
    assert torch.allclose(found(model, EVALUATORS[name]), expected, rtol=1e-12)
    assert expected.dtype == torch.float64
    assert not torch.allclose(found(model, EVALUATORS[name], seed=5), expected, rtol=1e-6)
    assert torch.equal(weights(model), before)


def test_a_model_that_cannot_be_batched_is_run_one_by_one():
    class Branching(nn.Linear):
        def forward(self, inputs):
            scores = super().forward(inputs)
            return scores if float(scores.sum()) > 0 else 2 * scores

    evaluator = Batched()
    model = build(lambda: Branching(5, 3).double(), 0)
    assert torch.equal(found(model, evaluator), found(model, OneByOne()))
    assert "one by one" in evaluator.note


def test_an_objective_must_return_one_loss_per_set():
    class Wrong:
        def losses(self, candidates):
            return torch.zeros(len(candidates) + 1)

    with pytest.raises(ObjectiveError, match=r"must return 7 losses, got \(8,\)"):
        evaluate(moved(net())[0], Wrong())


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_tile_size_does_not_change_a_run(name):
    def run(tile):
        evaluator = Batched(tile=tile)
        optimizer = SEARCHERS[name](model := net().double(), evaluator=evaluator)
        for number in range(3):
            inputs = randn(32, 64, seed=number)
            optimizer.step(inputs, torch.arange(32) % 10, cross_entropy)
        assert evaluator.note == "batched"
        return weights(model)

    whole = run(None)
    for tile in (1, 3):
        assert torch.allclose(run(tile), whole, atol=1e-9)


# -- models nobody had in mind ------------------------------------------------------------------

SPACES = {**SUBSPACES, "factored-1": Factored(1), "factored-3": Factored(3)}


class TiedConvolutions(nn.Module):
    """A convolution used twice, batch statistics, dropout, a frozen shift and a scalar."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.again = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.third = nn.Conv2d(4, 4, 3, padding=1)
        self.third.weight = self.again.weight
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 16, 10)
        self.shift = nn.Parameter(torch.full((4, 1, 1), 0.3), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, inputs):
        hidden = self.again(self.first(inputs.reshape(-1, 1, 8, 8)).relu() + self.shift)
        hidden = self.norm(self.third((hidden > 0).to(hidden) * hidden))
        return self.head(nn.functional.max_pool2d(self.drop(hidden), 2).flatten(1)) * self.scale


def problem_of(model):
    inputs, labels = batches().batch(0, 0)
    inputs = inputs[:24].to(model.scale.dtype)
    return Problem(model, inputs, labels[:24], cross_entropy)


def plain_losses(model, space, offsets, problem, seed=4):
    """A forward pass of a model that holds the values, for each move."""
    losses = []
    for offset in offsets:
        values = {n: p.detach() + space.expand(offset)[n] for n, p in trainable(model).items()}
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            output = torch.func.functional_call(model, values | buffers, problem.inputs)
        losses.append(float(cross_entropy(output, problem.target)))
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("name", SPACES)
def test_several_vectors_expand_as_each_does_alone(name):
    for model in ("linear", "conv2d", "norms", "bare", "frozen"):
        tensors = tensors_of(model)
        space = SPACES[name].bind(Layout(tensors), 3, 5)
        vectors = randn(2, space.dim, seed=2)
        many = space.expand_many(vectors)
        assert set(many) == set(tensors)
        for number, vector in enumerate(vectors):
            for key, change in space.expand(vector).items():
                assert many[key].shape == (2, *tensors[key].shape)
                torch.testing.assert_close(many[key][number], change, rtol=1e-12, atol=1e-12)


# Every subspace once, with one of the six pairs of a precision and an evaluator in turn.
WAYS = list(product((torch.float64, torch.float32), (Batched(), Batched(tile=4), OneByOne())))
TURNS = [(name, *WAYS[number % len(WAYS)]) for number, name in enumerate(SPACES)]


@pytest.mark.parametrize(("name", "dtype", "evaluator"), TURNS, ids=str)
def test_losses_of_tied_convolutions_are_those_of_plain_forward_passes(name, dtype, evaluator):
    model = build(TiedConvolutions, 0).to(dtype)
    problem, kept = problem_of(model), {n: t.clone() for n, t in model.state_dict().items()}
    candidates, space, offsets = moved(model, SPACES[name], num=6)
    expected = plain_losses(model, space, offsets, problem)
    found = evaluate(candidates, ModelObjective(problem, evaluator))
    assert torch.allclose(found, expected, rtol=1e-10 if dtype == torch.float64 else 1e-5)
    assert found.std() > 0.01
    for key, value in model.state_dict().items():
        assert torch.equal(value, kept[key])


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_step_reports_the_losses_of_plain_forward_passes(name):
    """Whatever evaluator a method takes when it is given none."""
    model = build(TiedConvolutions, 0).double()
    optimizer = SEARCHERS[name](model)
    problem, seen = problem_of(model), []
    usual = optimizer.evaluator.losses

    class Watching:
        def losses(self, candidates, problem):
            offsets = candidates.coordinates(Span(0, 0, len(candidates)))[1]
            seen.append(plain_losses(model, optimizer.space, offsets, problem, candidates.seed))
            found = usual(candidates, problem)
            assert torch.allclose(found, seen[-1], rtol=1e-10)
            return found

    optimizer.evaluator = Watching()
    loss = optimizer.step(problem.inputs, problem.target, problem.loss_fn)
    (losses,) = seen
    assert len(losses) == optimizer.evaluations == optimizer.evaluations_per_step
    reported = losses.min() if name == "random-search" else losses.mean()
    assert loss == pytest.approx(float(reported), rel=1e-10)


def test_nothing_has_to_be_looked_up_that_a_look_up_would_find_otherwise():
    candidates, _, offsets = moved(net(), RowWise(rank=2), num=5)
    fields = ("base", "subspace", "particles", "asked", "offsets", "seed")
    general = Candidates(*(getattr(candidates, name) for name in fields))
    assert list(candidates.spans()) == list(general.spans()) == [Span(0, 0, 5)]
    for span in (Span(0, 0, 5), Span(0, 3, 4)):
        index, moves = candidates.coordinates(span)
        expected, _ = general.coordinates(span)
        assert torch.equal(index, expected)
        assert torch.equal(moves, offsets[span.start : span.end])


@pytest.mark.parametrize("name", ["rows", "rows-rank-2", "global", "full", "factored-1"])
def test_a_budget_that_holds_a_tile_changes_no_bit(name):
    model = build(TiedConvolutions, 0)
    problem = problem_of(model)
    candidates = moved(model, SPACES[name], num=70)[0]
    large, small = (Batched(memory_budget=budget) for budget in (32 << 30, 1 << 30))
    losses = [evaluate(candidates, ModelObjective(problem, each)) for each in (large, small)]
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", ["full", "rows", "rows-shared", "global", "factored-1"])
def test_building_a_tile_takes_twice_its_size_at_most(name):
    """What the tile size of `Batched` is computed from."""
    candidates = moved(net(), SPACES[name], num=16)[0]
    with LiveBytes() as live:
        stacks = candidates.changed(Span(0, 0, 16))
    own = sum(stack.numel() * stack.element_size() for stack in stacks.values())
    assert own == 16 * 4 * weights(net()).numel()
    assert live.peak <= 2.1 * own


@pytest.mark.parametrize("kind", [MeZo, Spsa])
def test_two_losses_are_two_forward_passes_and_the_step_is_that_of_a_batch(kind):
    calls = []

    class Counting(TiedConvolutions):
        def forward(self, inputs):
            calls.append(1)
            return super().forward(inputs)

    models = [build(Counting, 0).double() for _ in range(2)]
    plain, batched = kind(models[0]), kind(models[1], evaluator=Batched())
    problem = problem_of(models[0])
    for number in range(3):
        calls.clear()
        loss = plain.step(problem.inputs, problem.target, cross_entropy)
        assert len(calls) == 2, number
        other = batched.step(problem.inputs, problem.target, cross_entropy)
        assert loss == pytest.approx(other, rel=1e-9)
    assert torch.allclose(weights(models[0]), weights(models[1]), atol=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("finite", [0.0, 3e38, -3e38])
def test_one_gradient_that_is_not_finite_stops_adam_and_large_ones_do_not(value, finite):
    model = nn.Linear(3, 2)
    optimizer = AdamTwin(model, nn.Linear(3, 2))
    before = weights(model)
    slopes = torch.full((1, 2), finite)

    def loss_fn(output):
        output.register_hook(lambda _: slopes)
        return output.sum()

    slopes[0, 1] = value
    optimizer.step(torch.ones(1, 3), None, loss_fn)
    assert optimizer.report.nonfinite == 1
    assert torch.equal(weights(model), before)
    slopes[0, 1] = finite
    optimizer.step(torch.ones(1, 3), None, loss_fn)
    assert optimizer.report.nonfinite == 0
    assert weights(model).isfinite().all()


def test_members_of_eggroll_have_the_rank_that_was_asked_for():
    model = build(TiedConvolutions, 0).double()
    optimizer = Eggroll(model, rank=2, population=6)
    assert isinstance(optimizer.evaluator, Batched)
    changes = optimizer.space.expand_many(randn(6, optimizer.space.dim, seed=3))
    for name, parameter in trainable(model).items():
        if parameter.dim() >= 2:
            for change in changes[name]:
                ranks = torch.linalg.matrix_rank(change.reshape(len(parameter), -1))
                assert int(ranks) == min(2, *parameter.reshape(len(parameter), -1).shape)


@pytest.mark.parametrize("subspace", [Full(), RowWise(rank=2)], ids=str)
def test_a_coordinate_that_is_not_finite_spoils_its_own_set_only(subspace):
    candidates, space, offsets = moved(net(), subspace, num=3)
    offsets[1, 0] = math.inf
    stacks = Moves(space).candidates(candidates.base, offsets, 0).changed(Span(0, 0, 3))
    for stack in stacks.values():
        assert stack[[0, 2]].isfinite().all()
    assert not all(bool(stack[1].isfinite().all()) for stack in stacks.values())
