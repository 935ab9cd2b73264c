import dataclasses
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import Batched, ModelObjective, OneByOne, Problem

from .catalogue import around, candidates_for, classify, hand_losses, made, problem_of, right_losses

CALLS: list[int] = []  # outside any module, since modules are restored


def branches(hidden):
    return 2 * hidden if (hidden > 0.5).any() else -hidden


def calls_item(hidden):
    return hidden * hidden.max().item()


def calls_numpy(hidden):
    return hidden + torch.from_numpy(hidden.numpy().round())


def masks(hidden):
    hidden = hidden.clone()
    hidden[hidden < 0] = 0
    return hidden


def writes_in_place(hidden):
    total = torch.zeros(len(hidden), 3, dtype=torch.float64)
    total += hidden
    return total


@pytest.mark.parametrize("awkward", [branches, calls_item, calls_numpy, masks, writes_in_place])
def test_a_model_that_cannot_be_batched_is_run_one_by_one_which_is_remembered_for_it_only(awkward):
    def counted(layer, inputs):
        CALLS.append(1)
        return awkward(layer(inputs))

    problem = around(counted)
    candidates = candidates_for(problem.model)
    evaluator = Batched()
    assert evaluator.note == "not used yet"
    first = right_losses(candidates, problem, evaluator)
    assert evaluator.note.startswith("one by one: RuntimeError: ")
    assert len(evaluator.note) > len("one by one: RuntimeError: ") + 20
    CALLS.clear()
    again = ModelObjective(problem, evaluator).losses(candidates)
    assert len(CALLS) == len(candidates)  # not one attempt more
    assert torch.equal(first, again)
    assert evaluator.note.startswith("one by one")
    other = problem_of("mlp")
    ModelObjective(other, evaluator).losses(candidates_for(other.model))
    assert evaluator.note == "batched"


def test_a_branch_that_no_candidate_reaches_through_its_change_is_batched():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)

        def forward(self, inputs):
            hidden = self.first(inputs)
            return self.second(hidden if hidden.sum() > 0 else -hidden)

    problem = classify(made(Gate), (3,), torch.float64)
    evaluator = Batched()
    right_losses(candidates_for(problem.model), problem, evaluator)
    assert evaluator.note == "batched"


def test_a_fault_of_the_model_or_the_loss_raises_its_own_error_and_is_not_remembered():
    def loss_fn(output, target):
        raise KeyError("no such label")

    problem, evaluator = problem_of("mlp"), Batched()
    candidates = candidates_for(problem.model)
    for change, error, sentence in (
        ({"inputs": torch.zeros(6, 4).double()}, RuntimeError, "mat1 and mat2 shapes cannot be m"),
        ({"loss_fn": loss_fn}, KeyError, "no such label"),
    ):
        with pytest.raises(error, match=sentence):
            ModelObjective(dataclasses.replace(problem, **change), evaluator).losses(candidates)
        ModelObjective(problem, evaluator).losses(candidates)
        assert evaluator.note == "batched"


@pytest.mark.parametrize("model", ["mlp", "conv-pool", "batchnorm", "spiking"])
def test_losses_are_the_same_bits_for_every_budget_that_holds_a_tile(model):
    problem = problem_of(model, torch.float32)
    candidates = candidates_for(problem.model, vertices=9)
    assert len(candidates) > 64
    small, large = (
        ModelObjective(problem, Batched(memory_budget=budget)).losses(candidates)
        for budget in (1 << 20, 1 << 40)
    )
    assert torch.equal(small, large)


@pytest.mark.parametrize("budget", [1, 3_000, 10_000])
def test_a_budget_below_a_tile_still_gives_all_losses(budget):
    problem = problem_of("mlp")
    evaluator = Batched(memory_budget=budget)
    right_losses(candidates_for(problem.model), problem, evaluator)
    assert evaluator.note == "batched"


class Scarce:
    """A bound subspace on a machine that cannot hold more than `limit` candidates."""

    def __init__(self, bound, limit, error):
        self._bound, self._limit, self._error = bound, limit, error
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._bound, name)

    def displace(self, base, block, index, offsets):
        self.asked.append(len(index))
        if len(index) > self._limit:
            raise self._error
        return self._bound.displace(base, block, index, offsets)


MEMORY_ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 12345 bytes"),
    MemoryError(),
]


@pytest.mark.slow
@pytest.mark.parametrize("error", MEMORY_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_a_memory_error_halves_the_tile_and_loses_no_candidate(model, limit, error):
    problem = problem_of(model)
    plenty = candidates_for(problem.model, vertices=4)
    scarce = dataclasses.replace(plenty, subspace=Scarce(plenty.subspace, limit, error))
    evaluator = Batched()
    losses = ModelObjective(problem, evaluator).losses(scarce)
    torch.testing.assert_close(losses, hand_losses(plenty, problem), rtol=0, atol=1e-10)
    assert evaluator.note == "batched"
    assert max(scarce.subspace.asked) > limit
    served = [size for size in scarce.subspace.asked if size <= limit]
    assert sum(served) == len(plenty)


def test_a_memory_error_that_no_halving_cures_arrives():
    problem = problem_of("mlp")
    plenty = candidates_for(problem.model)
    hopeless = dataclasses.replace(plenty, subspace=Scarce(plenty.subspace, 0, MEMORY_ERRORS[0]))
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        ModelObjective(problem, Batched()).losses(hopeless)


def test_tiles_shrink_where_activations_are_large():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, inputs):
            wide = (inputs * self.scale).expand(1_000_000, 3)
            return wide.sort(dim=1).values.mean(dim=0)

    model = Wide()
    seen = Scarce(candidates_for(model).subspace, 10**9, None)
    candidates = dataclasses.replace(candidates_for(model, vertices=8), subspace=seen)
    problem = Problem(model, torch.ones(1, 3), None, torch.sum)
    # Four results alive, of 12 MB (values) or 24 MB (indices): the latter forbid tiles of two.
    losses = ModelObjective(problem, Batched()).losses(candidates)
    assert set(seen.asked) == {1}
    assert len(losses) == 8


def test_a_tile_of_the_users_choice_is_kept():
    problem = problem_of("mlp")
    plenty = candidates_for(problem.model, vertices=8)
    seen = Scarce(plenty.subspace, 10**9, None)
    ModelObjective(problem, Batched(tile=7)).losses(dataclasses.replace(plenty, subspace=seen))
    assert max(seen.asked) == 7


unreduced = partial(F.cross_entropy, reduction="none")


@pytest.mark.parametrize("evaluator", [Batched(), OneByOne()], ids=["batched", "one"])
@pytest.mark.parametrize(
    ("loss_fn", "sentence"),
    [
        (unreduced, r"one number per parameter set, got \(6,\); reduce"),
        (lambda output, target: "high", "got str"),
    ],
    ids=["per example", "text"],
)
def test_a_loss_that_is_not_one_number_is_refused_with_advice(loss_fn, sentence, evaluator):
    problem = dataclasses.replace(problem_of("mlp"), loss_fn=loss_fn)
    with pytest.raises(ObjectiveError, match=sentence):
        ModelObjective(problem, evaluator).losses(candidates_for(problem.model))


@pytest.mark.parametrize(
    "convert",
    [float, lambda loss: loss.numpy()[()], lambda loss: loss.reshape(1)],
    ids=["float", "numpy", "one-element"],
)
def test_a_loss_function_may_leave_torch_or_keep_a_dimension(convert):
    problem = problem_of("mlp")
    candidates = candidates_for(problem.model)
    expected = hand_losses(candidates, problem)
    leaving = dataclasses.replace(
        problem, loss_fn=lambda output, target: convert(F.cross_entropy(output, target))
    )
    for evaluator in (Batched(), OneByOne()):
        losses = ModelObjective(leaving, evaluator).losses(candidates)
        torch.testing.assert_close(losses, expected, rtol=0, atol=1e-10)


def test_tiles_and_budgets_below_one_are_refused():
    with pytest.raises(ConfigError, match="tile must be a whole number >= 1, got 0"):
        Batched(tile=0)
    with pytest.raises(ConfigError, match="memory_budget must be a number > 0 and finite, got 0"):
        Batched(memory_budget=0)
    assert repr(Batched(tile=3, memory_budget=8)) == "Batched(tile=3, memory_budget=8)"


class Encoder(nn.Module):
    """torch's layer drops numbers of a transposed view, which a batch lays out otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.2, batch_first=True)

    def forward(self, inputs):
        return self.layer(inputs).mean(dim=1)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_random_numbers_that_fall_elsewhere_in_a_batch_are_noticed(mode):
    torch.manual_seed(0)
    model, inputs = getattr(Encoder().double(), mode)(), torch.randn(3, 5, 4).double()
    problem = Problem(model, inputs, torch.tensor([0, 1, 3]), F.cross_entropy)
    evaluator = Batched()
    right_losses(candidates_for(model), problem, evaluator)
    told = "one by one: RuntimeError: random numbers fall elsewhere in a batch of candidates"
    assert evaluator.note == (told if mode == "train" else "batched")
