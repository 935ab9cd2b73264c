"""Events: losses of convolutional networks from the few numbers that differ."""

import pytest
import torch
import torch.nn.functional as F

from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.evaluation.events.kernel import OpenTile
from hardstep.evaluation.events.linear import as_index
from hardstep.evaluation.events_tier import Events
from hardstep.evaluation.fused import Unfusable
from hardstep.nn import build
from hardstep.subspaces import Full, RowWise

from .catalogue import candidates_for
from .event_networks import NETWORKS
from .random_pictures import draw_problem

EXACT = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Small networks are followed even where nearly all of them changes."""
    monkeypatch.setattr("hardstep.evaluation.blocks.count_work", lambda *_: float("inf"))


def pose(name: str, dtype: torch.dtype = torch.float64, batch: int = 5) -> Problem:
    make, shape, _ = NETWORKS[name]
    model = build(make, 3).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(batch, *shape, generator=generator, dtype=dtype)
    return Problem(model, inputs, torch.arange(batch) % 4, F.cross_entropy)


def compare(problem: Problem, subspace=None, evaluator=None) -> Incremental:
    """Check all losses against plain forward passes."""
    evaluator = evaluator or Incremental()
    candidates = candidates_for(problem.model, subspace or RowWise(1))
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    found = ModelObjective(problem, evaluator).losses(candidates)
    limit = EXACT[plain.dtype]
    torch.testing.assert_close(found, plain, rtol=limit, atol=limit)
    return evaluator


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_those_of_plain_forward_passes(name):
    evaluator = compare(pose(name))
    tiers = {one: tier for names, tier in evaluator.notes.items() for one in names}
    assert {tiers[one] for one in NETWORKS[name][2].split()} <= {"events"}


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_get_the_losses_of_plain_forward_passes(seed):
    compare(draw_problem(seed))


@pytest.mark.parametrize("name", ["spiking", "binary", "separable"])
def test_single_precision_is_exact_to_its_rounding(name):
    compare(pose(name, torch.float32))


@pytest.mark.parametrize("name", ["wide", "branches", "grouped", "spiking", "separable"])
def test_losses_are_the_same_bits_in_any_company(name, monkeypatch):
    """Candidates of a group share what they read; with whom they do is up to threads and tiles."""
    problem, found = pose(name, torch.float32), []
    for together in (1, 2, 3, 4):
        monkeypatch.setattr("hardstep.evaluation.events.program.TOGETHER", together)
        evaluator = compare(problem)
        assert "events" in evaluator.notes.values()
        objective = ModelObjective(problem, evaluator)
        found.append(objective.losses(candidates_for(problem.model, RowWise(1))))
    assert all(torch.equal(one, found[0]) for one in found)


def count_operations(problem: Problem, limit: int, monkeypatch) -> list[float]:
    """Of all candidates, where more events than a limit are added target by target."""
    found = []
    leave = OpenTile.leave

    def watch(self):
        result = leave(self)
        found.extend(result.work.tolist())
        return result

    monkeypatch.setattr(OpenTile, "leave", watch)
    monkeypatch.setattr("hardstep.evaluation.events.planes.find_limit", lambda *sizes: limit)
    compare(problem)
    monkeypatch.setattr(OpenTile, "leave", leave)
    return found


@pytest.mark.parametrize(
    ("name", "dtype", "limit"),
    [
        ("wide", torch.float64, 2),
        ("wide", torch.float32, 2),
        ("branches", torch.float64, 18),
        ("upwards", torch.float64, 2),
        ("upwards", torch.float32, 2),
        ("one-dimensional", torch.float64, 2),
    ],
)
def test_many_events_of_a_channel_may_be_added_target_by_target(name, dtype, limit, monkeypatch):
    problem = pose(name, dtype)
    always, sometimes, never = (
        count_operations(problem, most, monkeypatch) for most in (0, limit, 10**9)
    )
    assert sum(always) > sum(sometimes) > sum(never)


def test_candidates_along_single_weights_are_followed():
    evaluator = compare(pose("wide"), Full())
    assert evaluator.notes[("2.weight",)] == "events"


def test_candidates_that_change_two_filters_take_another_tier():
    problem = pose("wide")
    candidates = candidates_for(problem.model, Full(), dim=4)  # a filter has nine weights
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    evaluator = Incremental()
    found = ModelObjective(problem, evaluator).losses(candidates)
    torch.testing.assert_close(found, plain, rtol=1e-10, atol=1e-10)
    assert evaluator.notes[("0.weight",)] != "events"


def test_a_plan_that_fails_gives_way(monkeypatch):
    def fail(*arguments):
        raise IndexError("beyond the end")

    monkeypatch.setattr("hardstep.evaluation.events_tier.plan_events", fail)
    evaluator = compare(pose("wide"))
    assert "events" not in evaluator.notes.values()


@pytest.mark.parametrize("batch", [1, 7])
def test_any_number_of_examples_will_do(batch):
    compare(pose("spiking", batch=batch))


def test_a_program_serves_later_steps_with_other_numbers():
    problem, evaluator = pose("binary"), Incremental()
    candidates = candidates_for(problem.model, RowWise(1))
    ModelObjective(problem, evaluator).losses(candidates)
    with torch.no_grad():
        for tensor in [*problem.model.parameters(), *problem.model.buffers()]:
            if tensor.is_floating_point():
                tensor.mul_(1.3).add_(0.01)
    changed = candidates_for(problem.model, RowWise(1))
    assert changed.base is not candidates.base
    compare(problem, evaluator=evaluator)


def test_the_number_of_threads_changes_no_bit():
    problem = pose("separable", torch.float32)
    candidates = candidates_for(problem.model, RowWise(1))
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(ModelObjective(problem, Incremental()).losses(candidates))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_tiles_change_no_bit(monkeypatch):
    problem = pose("spiking", torch.float32)
    candidates = candidates_for(problem.model, RowWise(1))
    whole = ModelObjective(problem, Incremental()).losses(candidates)
    monkeypatch.setattr("hardstep.evaluation.events_tier.EVENT_BYTES", 1)
    assert torch.equal(ModelObjective(problem, Incremental()).losses(candidates), whole)


def test_a_block_of_which_nearly_everything_changes_is_left_to_plain_passes(monkeypatch):
    monkeypatch.setattr("hardstep.evaluation.blocks.count_work", lambda *_: 1.0)
    evaluator = compare(pose("separable"))
    assert Events.name not in evaluator.notes.values()


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_base_that_is_not_finite_gives_the_losses_of_plain_passes(number):
    problem = pose("wide")
    problem.inputs[2, 0, 1, 1] = number
    candidates = candidates_for(problem.model, RowWise(1))
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    found = ModelObjective(problem, Incremental()).losses(candidates)
    torch.testing.assert_close(found, plain, equal_nan=True, rtol=1e-10, atol=1e-10)


def test_batch_norm_with_the_statistics_of_the_batch_is_exact():
    problem = pose("binary")
    problem.model.train()
    compare(problem)


def test_numbers_beyond_32_bits_are_refused_not_wrapped():
    with pytest.raises(Unfusable, match="more weights than 32 bits can number"):
        as_index(torch.tensor([2**31]))
    assert as_index(torch.tensor([2**31 - 1])).values.tolist() == [2**31 - 1]
