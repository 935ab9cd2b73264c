"""Crossings of walls, on numbers and on digits with few training steps and few walls."""

import numpy as np
import pytest
import torch

from hardstep.nn import LIF, Quantize, build
from hardstep.tasks.architectures import quantized_mlp, spiking_mlp
from hardstep.theory import pwc_loss
from hardstep.theory import pwc_loss_trained as walls
from hardstep.theory.pwc_loss import Batch, first_spikes
from hardstep.theory.suite import Setup
from hardstep.theory.trained_networks import blind, make_alike, train_twin

FEW = 16


@pytest.fixture(scope="module")
def nets():
    return {name: train_twin(name, Setup(), 128, 20, 3e-3) for name in walls.SITES}


def measured(net, layer, num=FEW):
    return walls.jumps(layer(net.model, net.batch), net.batch.labels, num, np.random.default_rng(1))


def test_spike_walls_are_where_a_neuron_fires_after_n_steps():
    walls = pwc_loss.spike_walls()
    assert float(walls[0]) == pytest.approx(1.0)
    for n, current in enumerate(walls.tolist(), start=1):
        late = pwc_loss.spike_trains(
            LIF(0.9), torch.tensor([current * (1 + 1e-9)], dtype=torch.float64)
        )
        assert int(late[:, 0].argmax()) == n - 1


def test_first_spikes_count_silence_as_never():
    spikes = torch.zeros(15, 2)
    spikes[4, 1] = 1.0
    assert first_spikes(spikes).tolist() == [15.0, 4.0]


def test_a_wall_is_kept_if_its_owner_alone_changed():
    changed = torch.tensor([[True, False], [True, True], [False, True], [False, False]])
    kept = pwc_loss.is_sole(changed, torch.tensor([0, 0, 0, 0]))
    assert kept.tolist() == [True, False, False, False]


def test_crossings_by_hand():
    before = np.array([[1.0, 2.0], [1.0, 2.0]])
    beyond = np.array([[1.0, 3.0], [1.0, 2.0]])
    facts = pwc_loss.Crossings(before, beyond, np.array([1, 0])).facts()
    assert facts == {
        "zero fraction": 0.5, "example-local": 0.0, "against j/n_B": 0.0, "walls": 2.0,
    }  # fmt: skip


def test_batch_law_is_one_for_walls_of_one_example():
    small, large = np.zeros((1, 4)), np.zeros((1, 40))
    small[0, 0] = large[0, 0] = 0.7
    assert pwc_loss.batch_law(small, large) == pytest.approx(1.0)


def test_training_is_seeded_and_ends_in_a_hard_model_in_float64(nets):
    first, again = nets["int8"], train_twin("int8", Setup(), 128, 20, 3e-3)
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
    facts = measured(nets["argmax"], walls.routing_site)
    assert (facts["walls"], facts["zero fraction"]) == (FEW, 0.0)
    assert facts["example-local"] < 1e-11 < facts["largest J"]


def test_rounded_walls_move_many_examples_or_are_hidden(nets):
    facts = measured(nets["int8"], walls.rounding_site, num=64)
    assert facts["walls"] == 64
    assert facts["agreement"] == 1.0
    assert facts["examples moved"] > 5
    assert facts["against j/n_B"] > 1e-11


def test_weights_end_as_they_were(nets):
    net = nets["staircase"]
    before = [weight.clone() for weight in net.model.parameters()]
    measured(net, walls.stair_site)
    assert all(map(torch.equal, before, net.model.parameters()))


def test_a_wall_is_where_the_decision_changes(nets):
    net = nets["moe"]
    site = walls.routing_site(net.model, net.batch)
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
    site = walls.spiking_site(model, Batch(torch.zeros(1, 4).double(), labels))

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
    site = walls.rounding_site(model, batch)
    wall = walls.Wall(0, 1, torch.zeros(2), torch.tensor(0.0))

    def hidden(unit):
        look = walls.Look(unit, unit, torch.tensor(unit))
        return site.hidden(wall, look, look)

    assert hidden([0.3, 0.0]) == (True, False)
    assert hidden([0.0, 0.0]) == (True, True)
    assert hidden([0.3, 0.2]) == (False, False)


def test_a_readout_cut_in_half_hides_walls_that_the_structure_does_not():
    net = train_twin("int8", Setup(), 128, 5, 3e-3)
    blind(net.model, 2)
    assert not net.model[-1].weight[:, ::2].any()
    assert net.model[-1].weight[:, 1::2].any()
    assert measured(net, walls.rounding_site)["agreement"] < 1.0


def test_identical_experts_make_routing_walls_vanish():
    net = train_twin("moe", Setup(), 64, 5, 3e-3)
    different = measured(net, walls.routing_site)["median J"]
    make_alike(net.model, 0.1)
    assert 0.0 < measured(net, walls.routing_site)["median J"] < different
    make_alike(net.model, 0.0)
    assert measured(net, walls.routing_site)["zero fraction"] == 1.0


def test_first_spikes_do_not_follow_counts(nets):
    def read(model, batch):
        return walls.spiking_site(model, batch, readout=first_spikes)

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
    assert walls.in_order(table())
    assert not walls.in_order(table(**change))
