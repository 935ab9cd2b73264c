"""`wake` makes silent networks fire, and leaves others alone."""

import pytest
import snntorch
import torch
from torch import nn
from torch.nn import functional

import hardstep
from hardstep import Length, PolyStep, RowWise, Simplex
from hardstep.data import digits
from hardstep.errors import ConfigError
from hardstep.nn import build, wake
from hardstep.tasks.builtin import ON_IMAGES

DATA = digits(seed=0).train
X, Y = DATA.inputs[:64], DATA.labels[:64]


def pool(x):
    return functional.max_pool2d(x, 2)


class SpikingCnn(nn.Module):
    """Torch's initial weights leave its last layers silent."""

    def __init__(self, channels=(6, 8)):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], 3, padding=1)
        self.conv2 = nn.Conv2d(*channels, 3, padding=1)
        self.fc = nn.Linear(4 * channels[1], 10)

    def forward(self, x):
        x, membranes, count = x.reshape(-1, 1, 8, 8), [0.0, 0.0, 0.0], 0.0
        for _ in range(10):
            spikes = x
            for i, layer in enumerate((self.conv1, self.conv2, self.fc)):
                current = layer(spikes.flatten(1)) if i == 2 else pool(layer(spikes))
                membrane = 0.5 * membranes[i] + current
                spikes = (membrane >= 1).float()
                membranes[i] = membrane * (1 - spikes)
            count = count + spikes
        return count


class Leaky(nn.Module):
    """The same of snnTorch's neurons; returns spikes and membranes, as its tutorials do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 32), nn.Linear(32, 10)])
        self.neurons = nn.ModuleList([snntorch.Leaky(beta=0.5) for _ in self.layers])

    def forward(self, x):
        membranes = [neuron.reset_mem() for neuron in self.neurons]
        spikes_of_time, membranes_of_time = [], []
        for _ in range(8):
            spikes = x
            for i, (layer, neuron) in enumerate(zip(self.layers, self.neurons, strict=True)):
                spikes, membranes[i] = neuron(layer(spikes), membranes[i])
            spikes_of_time.append(spikes)
            membranes_of_time.append(membranes[-1])
        return torch.stack(spikes_of_time), torch.stack(membranes_of_time)


def count_loss(output, target):
    return functional.cross_entropy(output[0].sum(0), target)


def losses_and_dead_shares(model, steps, loss_fn=functional.cross_entropy):
    opt = PolyStep(
        model,
        subspace=RowWise(rank=2),
        polytope=Simplex(2),
        step_radius=Length(0.05),
        probe_radius=Length(0.5),
    )
    reports = [(opt.step(X, Y, loss_fn), opt.report)[1] for _ in range(steps)]
    return [r.loss for r in reports], [r.dead_share for r in reports]


def test_a_silent_spiking_cnn_learns_after_waking():
    losses, dead = losses_and_dead_shares(model := build(SpikingCnn, seed=0), 1)
    assert dead[0] > 0.9
    report = wake(model, X)
    assert min(woken.after for woken in report.layers) >= 0.5
    losses, dead = losses_and_dead_shares(model, 4)
    assert dead[0] < 0.2
    assert losses[-1] < 2.2  # without waking it is 2.303 at every step: no output unit fires


def test_networks_of_snntorch_are_woken_from_their_own_initial_weights():
    model = build(Leaky, seed=0)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(0.25)
    assert losses_and_dead_shares(model, 1, count_loss)[1][0] > 0.9
    wake(model, X)
    losses, dead = losses_and_dead_shares(model, 4, count_loss)
    assert dead[0] < 0.2
    assert losses[-1] < losses[0]
    assert {tuple(neuron.mem.shape) for neuron in model.neurons} == {(0,)}  # no state is left


@pytest.mark.parametrize("name", ON_IMAGES["digits"])
def test_networks_that_train_are_left_alone(name):
    task = ON_IMAGES["digits"][name]
    model = build(task.model, seed=0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    report = wake(model, task.data(0).train.inputs[:64])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert {(woken.factor, woken.shifted) for woken in report.layers} == {(1.0, False)}


def test_what_always_fires_is_scaled_down_or_shifted():
    def saturated():
        model = nn.Sequential(nn.Linear(64, 16), Step(), nn.Linear(16, 10))
        with torch.no_grad():
            model[0].bias.add_(50.0)
        return model

    class Step(nn.Module):
        def forward(self, x):
            return (x >= 1).float()

    model = build(saturated, seed=0)
    (first, last) = wake(model, X).layers
    assert (first.before, last.before) == (0.0, 0.0)
    assert first.shifted
    assert first.after >= 0.5
    assert last.after == 1.0


def test_waking_is_deterministic_and_changes_nothing_but_weights():
    class Normed(SpikingCnn):
        def __init__(self):
            super().__init__()
            self.norm, self.calls = nn.BatchNorm2d(1), 0

        def forward(self, x):
            self.calls += 1
            x = functional.dropout(self.norm(x.reshape(-1, 1, 8, 8)), 0.1)
            return super().forward(0.1 * x)

    models = [build(Normed, seed=0) for _ in range(2)]
    state = torch.get_rng_state()
    reports = [wake(model, X) for model in models]
    assert reports[0] == reports[1]
    assert torch.equal(torch.get_rng_state(), state)
    fresh = build(Normed, seed=0)
    changed = {
        name
        for (name, value), other in zip(
            models[0].state_dict().items(), fresh.state_dict().values(), strict=True
        )
        if not torch.equal(value, other)
    }
    assert changed <= {
        f"{layer}.{kind}" for layer in ("conv1", "conv2", "fc") for kind in ("weight", "bias")
    }
    assert changed
    assert models[0].calls == 0
    assert not models[0].conv1._forward_hooks


def test_the_report_is_a_table_of_layers():
    text = str(wake(build(SpikingCnn, seed=0), X)).splitlines()
    assert text[0].split() == ["layer", "awake", "before", "after", "what", "was", "done"]
    assert [line.split()[0] for line in text[1:]] == ["conv1", "conv2", "fc"]
    assert "scaled by" in text[3]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((lambda x: x, X), "wake: model must be a module, got a function"),
        ((nn.ReLU(), X), "wake: the model calls no layer with a trainable weight"),
        ((nn.Linear(64, 2), X, 0), r"wake: target must be a number in \(0, 1\], got 0"),
        ((nn.Linear(64, 2), X, "a"), r"wake: target must be a number in \(0, 1\], got 'a'"),
    ],
)
def test_what_cannot_be_woken_is_refused(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        wake(*arguments)


def test_a_layer_that_no_factor_wakes_stays_as_it_was():
    class Deaf(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x).sign().relu().clamp(max=0.0)

    model = build(Deaf, seed=0)
    before = model.layer.weight.clone()
    (only,) = hardstep.nn.wake(model, X).layers
    assert torch.equal(model.layer.weight, before)
    assert only.after == only.before
