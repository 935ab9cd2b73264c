"""The parts of the trained protocols, on digits with few steps and few walls."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hardstep import presets, tasks
from hardstep.errors import DataError
from hardstep.geometry import Haar, Mollifier, Orthoplex
from hardstep.nn import Quantize, build
from hardstep.schedules import length_at, temperature_at
from hardstep.tasks.architectures import quantized_mlp, spiking_mlp
from hardstep.theory import checks
from hardstep.theory import group_i_trained as walls
from hardstep.theory import group_j_trained as runs
from hardstep.theory.group_i import Batch, first_spikes
from hardstep.theory.suite import Run

FEW = 16


@pytest.fixture(scope="module")
def nets():
    return {name: runs.twin_trained(name, Run(), 128, 60, 3e-3) for name in walls.SITES}


def measured(net, layer, num=FEW):
    return walls.jumps(layer(net.model, net.batch), net.batch.labels, num, np.random.default_rng(1))


def test_both_protocols_are_registered_as_such():
    assert {one.id for one in checks() if one.kind == "P"} == {"I7", "J2"}


# -- walls --------------------------------------------------------------------------------------


def test_training_is_seeded_and_ends_in_a_hard_model_in_float64(nets):
    first, again = nets["int8"], runs.twin_trained("int8", Run(), 128, 60, 3e-3)
    weights = dict(first.model.named_parameters())
    assert all(torch.equal(weights[n], w) for n, w in again.model.named_parameters())
    assert {w.dtype for w in weights.values()} == {torch.float64}
    assert first.model[2].transform == Quantize()
    answers = first.model(first.batch.inputs).argmax(dim=1)
    assert (answers == first.batch.labels).double().mean() > 0.7


@pytest.mark.parametrize("name", ["snn", "staircase", "moe"])
def test_walls_of_one_example_move_it_alone(nets, name):
    facts = measured(nets[name], walls.SITES[name])
    assert facts["walls"] == FEW
    assert facts["example-local"] == 0.0
    assert facts["against j/n_B"] <= 1e-14
    assert facts["agreement"] == 1.0


def test_rerouted_attention_moves_the_loss_and_the_others_hardly(nets):
    facts = measured(nets["argmax"], walls.routed)
    assert (facts["walls"], facts["zero fraction"]) == (FEW, 0.0)
    assert facts["example-local"] < 1e-11 < facts["largest J"]


def test_rounded_walls_move_many_examples_or_are_hidden(nets):
    facts = measured(nets["int8"], walls.rounded, num=64)
    assert facts["walls"] == 64
    assert facts["agreement"] == 1.0
    assert facts["examples moved"] > 5
    assert facts["against j/n_B"] > 1e-11


def test_weights_end_as_they_were(nets):
    net = nets["staircase"]
    before = [weight.clone() for weight in net.model.parameters()]
    measured(net, walls.stepped)
    assert all(map(torch.equal, before, net.model.parameters()))


def test_a_wall_is_where_the_decision_changes(nets):
    net = nets["moe"]
    site = walls.routed(net.model, net.batch)
    wall = next(site.walls(np.random.default_rng(2)))
    row = site.weight[wall.row]
    kept = row.clone()
    row.copy_(kept + wall.distance * wall.direction)
    scores = net.model[2].gate(net.model[:2](net.batch.inputs))[wall.item]
    row.copy_(kept)
    best = scores.topk(2)
    assert wall.row in best.indices
    assert float(best.values[0] - best.values[1]) == pytest.approx(0.0, abs=1e-10)


def test_nearest_edge():
    target = walls.nearest(torch.tensor([0.0, 1.0, 5.0]))
    assert float(target(torch.tensor([9.0, 0.6]), 1)) == 1.0


def test_counts_of_wrong_classes_may_be_exchanged():
    labels = torch.tensor([0])
    model = build(lambda: spiking_mlp(4, 5, 3), 0).double().requires_grad_(False)
    site = walls.spiking(model, Batch(torch.zeros(1, 4).double(), labels))

    def hidden(before, beyond):
        looks = [walls.Look(labels, labels, torch.tensor([counts])) for counts in (before, beyond)]
        return site.hidden(None, *looks)

    assert hidden([7.0, 1.0, 2.0], [7.0, 1.0, 2.0]) == (True, True)
    assert hidden([7.0, 1.0, 2.0], [7.0, 2.0, 1.0]) == (True, False)
    assert hidden([7.0, 1.0, 2.0], [2.0, 1.0, 7.0]) == (False, False)


def test_an_entry_whose_input_and_unit_are_never_active_together_is_hidden_without_being_dead():
    model = quantized_mlp(2, 2, 2, Quantize()).double().requires_grad_(False)
    model[0].weight.copy_(torch.eye(2))
    model[0].bias.zero_()
    batch = Batch(torch.eye(2).double(), torch.tensor([0, 1]))  # each example one active input
    site = walls.rounded(model, batch)
    wall = walls.Wall(0, 1, torch.zeros(2), torch.tensor(0.0))

    def hidden(unit):
        look = walls.Look(unit, unit, torch.tensor(unit))
        return site.hidden(wall, look, look)

    assert hidden([0.3, 0.0]) == (True, False)
    assert hidden([0.0, 0.0]) == (True, True)
    assert hidden([0.3, 0.2]) == (False, False)


def test_a_readout_cut_in_half_hides_walls_that_the_structure_does_not():
    net = runs.twin_trained("int8", Run(), 128, 5, 3e-3)
    runs.blind(net.model, 2)
    assert not net.model[-1].weight[:, ::2].any()
    assert net.model[-1].weight[:, 1::2].any()
    assert measured(net, walls.rounded)["agreement"] < 1.0


def test_identical_experts_make_routing_walls_vanish():
    net = runs.twin_trained("moe", Run(), 64, 5, 3e-3)
    different = measured(net, walls.routed)["median J"]
    runs.alike(net.model, 0.1)
    assert 0.0 < measured(net, walls.routed)["median J"] < different
    runs.alike(net.model, 0.0)
    assert measured(net, walls.routed)["zero fraction"] == 1.0


def test_first_spikes_do_not_follow_counts(nets):
    def read(model, batch):
        return walls.spiking(model, batch, readout=first_spikes)

    assert measured(nets["snn"], read, num=64)["agreement"] < 1.0


def table(**changes):
    """An acceptable table of I7, with some numbers changed."""
    facts = {"example-local": 0.0, "against j/n_B": 0.0, "agreement": 1.0, "zero fraction": 0.0}
    values = {
        f"{name}: {fact}": value
        for name in walls.SITES
        for fact, value in (facts | {"median J": 1e-5, "walls": walls.NUMBERS[name]}).items()
    }
    good = {"snn: zero fraction": 0.6, "int8: against j/n_B": 1e-5, "moe: median J": 1e-3}
    return values | good | changes


@pytest.mark.parametrize(
    "change",
    [
        {"snn: zero fraction": 0.95},
        {"snn: agreement": 0.99},
        {"int8: agreement": 0.99},
        {"int8: against j/n_B": 0.0},
        {"argmax: zero fraction": 0.01},
        {"moe: median J": 1e-6},
        {"staircase: example-local": 1e-12},
        {"moe: walls": 255.0},
    ],
)
def test_every_clause_of_the_table_can_fail(change):
    assert walls.accepted(table())
    assert not walls.accepted(table(**change))


# -- saturation ---------------------------------------------------------------------------------


def test_theory_mode_keeps_temperature_and_lengths_and_meets_the_settable_conditions():
    settings = runs.theory_mode(presets.argmax(3180))
    assert settings.subspace == presets.argmax(3180).subspace
    assert isinstance(settings.rotation, Haar)
    assert (settings.polytope, settings.rules) == (Orthoplex(8), ())
    assert settings.jitter.probe == settings.jitter.step == Mollifier(0.05)
    for step, expected in ((0, 32.0), (3, 32.0 * 4**-0.6)):
        assert temperature_at(settings.temperature, step) == 5.0
        assert length_at("step", settings.step_radius, step, 5.0) == pytest.approx(expected)
        assert length_at("probe", settings.probe_radius, step, 5.0) == pytest.approx(2.0)


def test_cooling_leaves_lengths():
    settings = runs.theory_mode(presets.snn(3180), cooling=50.0)
    assert temperature_at(settings.temperature, 0) == pytest.approx(0.01)
    assert length_at("step", settings.step_radius, 0, 0.01) == pytest.approx(1.0)
    assert length_at("probe", settings.probe_radius, 0, 0.01) == pytest.approx(0.5)


def test_presets_are_scheduled_over_the_papers_steps():
    assert runs.tuned("int8") == presets.int8(3180)


def test_rows_are_logged_and_saturate_when_cooled():
    settings = runs.tuned("staircase")
    warm = runs.logged("staircase", settings, Run(), 3)
    assert (warm.data, warm.num_rows % 3, warm.saturation) == ("digits", 0, 0.0)
    assert 0.0 < warm.spread < 1.0
    assert runs.logged("staircase", settings, Run(), 3) == warm
    cold = runs.logged("staircase", runs.theory_mode(settings, 50.0), Run(), 3)
    assert cold.saturation > 0.0
    assert cold.facts("x") == {"x: σ̄": cold.saturation, "x: max Δ/ε": cold.spread}


def test_acceptance_of_saturation():
    good = runs.joined(runs.Log("", 0, 0.0, 0.5).facts(name) for name in runs.PRINTED)
    assert runs.covered(good)
    assert runs.covered(good | {"snn: σ̄": 5e-4, "snn: max Δ/ε": 2.0})
    assert not runs.covered(good | {"snn: σ̄": 2e-3})
    assert not runs.covered(good | {"int8: σ̄": 1e-9})
    assert not runs.covered(good | {"argmax, theory mode: max Δ/ε": 1.1})


def test_digits_stand_in_for_missing_data(monkeypatch):
    def missing(seed):
        raise DataError("not here")

    def find(name, data="digits"):
        task = tasks.find(name, data)
        return replace(task, data=missing) if data == "mnist" else task

    monkeypatch.setattr(runs, "find", find)
    task, data = runs.data_for("snn", Run(quick=False), 0)
    assert (task.name, data.name) == ("snn", "digits")
