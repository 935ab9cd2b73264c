"""Directions through everything, drawn again at every step."""

import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.evaluation import Incremental
from hardstep.geometry import Biased
from hardstep.nn import HardMoE, build
from hardstep.optim import AdaptiveProbes, Momentum, PlanReuse, PolyStep, WeightMomentum, presets
from hardstep.subspaces import Layout, RowWise, Sketch

from .catalogue import bound, matrix, randn, tensors_of


@pytest.mark.parametrize("model", ["linear", "bare", "norms", "tied"])
def test_directions_lie_in_the_subspace_inside_and_reach_every_tensor(model):
    inside = matrix(RowWise(1).bind(Layout(tensors_of(model)), 1, 5))
    directions = matrix(bound("sketch", model))
    torch.testing.assert_close(inside @ (inside.T @ directions), directions, rtol=0, atol=1e-12)
    start = 0
    for tensor in tensors_of(model).values():
        assert (directions[start : start + tensor.numel()].norm(dim=0) > 1e-6).all()
        start += tensor.numel()


def test_every_step_has_its_own_directions_and_they_can_be_drawn_again():
    first, second = bound("sketch", "linear"), bound("sketch", "linear")
    seen = [matrix(first)]
    for step in range(3):
        assert first.commit(step, randn(first.dim))
        seen.append(matrix(first))
    for n, one in enumerate(seen):
        assert all((one - other).abs().max() > 0.1 for other in seen[n + 1 :])
    second.load_state_dict(first.state_dict())
    assert torch.equal(matrix(second), seen[-1])


def test_the_subspace_inside_goes_on_with_its_turns():
    subspace = bound("sketch-of-turns", "linear")  # a turn is two steps
    units = [subspace.inner.maps[0].units.tolist()]
    for step in range(4):
        subspace.commit(step, randn(subspace.dim))
        units.append(subspace.inner.maps[0].units.tolist())
    assert units[0] == units[1] != units[2] == units[3]


def test_a_step_costs_the_vertices_of_one_particle_however_large_the_model():
    for width in (3, 300):
        model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))
        opt = PolyStep(model, presets.sketch(10, dim=7))
        assert (opt.num_particles, opt.evaluations_per_step) == (1, 8)


def test_a_model_of_fewer_numbers_than_directions_is_searched_whole():
    subspace = Sketch(RowWise(1)).bind(Layout({"weight": randn(1, 1), "bias": randn(1)}), 16, 0)
    columns = matrix(subspace)
    assert columns.shape == (2, 2)
    torch.testing.assert_close(columns @ columns.T, torch.eye(2).double(), rtol=0, atol=1e-12)


def test_nothing_is_recorded_for_candidates_that_keep_nothing():
    model = build(lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), 0)
    evaluator = Incremental()
    opt = PolyStep(model, presets.sketch(5), evaluator=evaluator)
    opt.step(randn(8, 6).float(), torch.zeros(8).long(), nn.functional.cross_entropy)
    assert set(evaluator.notes.values()) == {
        "a candidate moves every tensor, so there is nothing to keep"
    }
    assert evaluator.fallback.note == "batched"


@pytest.mark.parametrize(
    "given",
    [
        {"rules": (PlanReuse(3),)},
        {"rules": (WeightMomentum(0.9), Momentum(0.5))},
        {"rules": (AdaptiveProbes(),)},
        {"rotation": Biased()},
    ],
    ids=str,
)
def test_what_remembers_coordinates_is_refused_rather_than_left_without_effect(given):
    with pytest.raises(ConfigError, match="remembers coordinates, and a Sketch has new ones"):
        presets.sketch(10).changed(**given)


@pytest.mark.parametrize("of", [8, RowWise], ids=str)
def test_a_sketch_of_no_subspace_is_refused(of):
    with pytest.raises(ConfigError, match="of must be a subspace such as RowWise"):
        Sketch(of)


@pytest.mark.slow
def test_few_evaluations_train_a_mixture_whose_units_they_could_not_ask_one_by_one():
    x = randn(128, 10).float()
    y = (x[:, 0] * x[:, 1] > 0).long()  # no linear model is better than chance, ln 2
    losses = {}
    for name, preset in (("sketch", presets.sketch), ("frugal", presets.frugal)):
        model = build(lambda: nn.Sequential(HardMoE(10), nn.Linear(10, 2)), 0)
        steps = 3_400 // PolyStep(model, preset(1)).evaluations_per_step
        opt = PolyStep(model, preset(steps))
        for _ in range(steps):
            opt.step(x, y, nn.functional.cross_entropy)
        assert 3_300 < opt.evaluations <= 3_400
        losses[name] = nn.functional.cross_entropy(model(x), y).item()
    assert losses["sketch"] < 0.2
    assert losses["frugal"] > 1.5 * losses["sketch"]
