import json
from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn import functional

from hardstep import Length, PolyStep, presets
from hardstep import nn as hard
from hardstep.cli import diagnose as command
from hardstep.cli.diagnose import DiagnoseOptions, conclusion, run_diagnose
from hardstep.data import Batches, digits
from hardstep.errors import ConfigError
from hardstep.optim import diagnose
from hardstep.optim.diagnosis import SWEEP
from hardstep.schedules import Cosine
from hardstep.training import ACCURACY, mean_score

STEPS = 50
DATA = digits(seed=0)


def batches():
    return Batches(DATA.train, 64, seed=0)


def spiking():
    """A small spiking network, the same at every call."""
    return hard.build(lambda: hard.SpikingMLP((64, 12, 10), num_steps=8), 0)


def scaled(factor):
    """The preset with both radii as much too long."""
    return presets.general(STEPS, rank=4, step_radius=0.25 * factor, probe_radius=2.0 * factor)


def train(settings):
    """Validation accuracy after a short run; guessing is right one time in ten."""
    model = spiking()
    optimizer = PolyStep(model, settings)
    while optimizer.steps < STEPS:
        for batch in islice(iter(batches()), STEPS - optimizer.steps):
            optimizer.step(*batch, functional.cross_entropy)
    return mean_score(model, Batches(DATA.valid, 64, seed=0), ACCURACY.function)


@pytest.fixture(scope="module", params=[1e-6, 1e3], ids=["short", "long"])
def stuck(request):
    """Settings a million times too short or a thousand times too long, and their diagnosis."""
    settings = scaled(request.param)
    pairs = list(islice(iter(batches()), 4))
    return settings, diagnose(spiking(), pairs, functional.cross_entropy, settings)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hardstep.errors.HardstepWarning")
def test_the_recommendation_trains_what_a_wrong_radius_does_not(stuck):
    settings, found = stuck
    assert train(settings) <= 0.2
    step = found.recommended.step_radius.at(0, 1.0)
    radius = Length(Cosine(step, 0.03 * step, STEPS))
    assert train(found.recommended.changed(step_radius=radius)) >= 0.6
    assert "lowered the loss on other examples" in found.reasons[-1]


@pytest.mark.slow
def test_probes_that_are_too_short_or_too_long_are_named(stuck):
    """Spike counts: probes of a few millionths move no spike."""
    settings, found = stuck
    if settings.probe_radius.at(0, 1.0) < 1:
        assert found.here.dead_rows > 0.5
        assert found.reasons[0].startswith("dead rows: at probe radius")
        assert not any("wake" in reason for reason in found.reasons)  # its units fire
    else:
        assert found.here.dead_rows == 0.0
        assert "much longer than those of the best trial" in found.reasons[0]
    smallest, largest = found.sweep[0], found.sweep[-1]
    assert smallest.flat_pairs > 0.9 > largest.flat_pairs


class Forty(nn.Module):
    """A function of forty numbers, whatever the inputs."""

    def __init__(self, start, function):
        super().__init__()
        self.x, self.function = nn.Parameter(torch.full((40,), start)), function

    def forward(self, inputs):
        return self.function(self.x) + 0 * inputs.sum()


def diagnosed_at(start, function, **options):
    batch = (torch.zeros(1), torch.zeros(1))
    settings = presets.general(10, probe_radius=0.2).changed(subspace=presets.rl().subspace)
    model = Forty(start, function)
    return diagnose(model, [batch, batch], lambda out, _: out, settings, **options)


def test_shares_are_those_of_a_staircase_in_one_dimension():
    """floor(x): probes of 0.2 around 0.5 stay on the step, probes of 4 leave it."""

    found = diagnosed_at(0.5, lambda x: torch.floor(x).sum())
    assert (found.here.flat_pairs, found.here.dead_rows, found.here.crossed) == (1.0, 1.0, 0.0)
    assert found.reasons[0].startswith("dead rows: at probe radius")
    assert "hardstep.nn.wake(model, inputs) scales" in found.reasons[-2]
    assert found.recommended.probe_radius.at(0, 1.0) > 1.0
    by_radius = {probed.probe_radius: probed for probed in found.sweep}
    assert by_radius[SWEEP[-1]].dead_rows == 0.0


def test_nothing_of_the_model_changes():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    before = {name: p.clone() for name, p in model.named_parameters()}
    batch = (torch.randn(8, 4), torch.randint(0, 2, (8,)))
    diagnose(model, [batch, batch], nn.functional.cross_entropy, presets.general(10))
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_a_loss_that_no_parameter_reaches_is_refused():
    model = nn.Linear(3, 2)
    batch = (torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ConfigError, match="no probe between"):
        diagnose(model, [batch, batch], lambda out, _: 0 * out.sum(), presets.general(10))


def test_nothing_is_recommended_where_no_trial_lowers_the_loss():
    """A bowl, from its bottom: every probe sees differences, every step goes up."""

    seen = []
    found = diagnosed_at(0.0, lambda x: (x**2).sum(), watch=seen.append)
    assert found.recommended is None
    assert found.reasons[-1].startswith("no radius helps: the best trial, 6 steps at ")
    assert tuple(seen) == found.sweep
    assert conclusion(found).endswith("recommended: no other radii or temperature")


@pytest.fixture(scope="module")
def diagnosed():
    """What the command finds, computed once."""
    found = []

    def remember(*arguments):
        if not found:
            found.append(diagnose(*arguments))
            return found[0]
        watch = arguments[-1]
        for probed in found[0].sweep if watch else ():
            watch(probed)
        return found[0]

    return remember


@pytest.mark.slow
def test_the_command_shows_every_radius_and_what_it_recommends(capsys, monkeypatch, diagnosed):
    monkeypatch.setattr(command, "diagnose", diagnosed)
    assert run_diagnose(DiagnoseOptions("mlp", probe_radius=1e-4)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [float(line.split()[0]) for line in lines[1 : len(SWEEP) + 1]] == [
        float(f"{radius:.3g}") for radius in SWEEP
    ]
    assert lines[-1].startswith("recommended: temperature ")
    assert "probe radius" in lines[-1]


def test_the_command_prints_json_and_draws(tmp_path, capsys, monkeypatch, diagnosed):
    monkeypatch.setattr(command, "diagnose", diagnosed)
    picture = tmp_path / "flat.png"
    options = DiagnoseOptions("mlp", probe_radius=1e-4, picture=picture, json=True)
    assert run_diagnose(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["here"]["probe_radius"] == 1e-4
    assert len(found["sweep"]) == len(SWEEP)
    assert found["recommended"]["probe_radius"] in SWEEP
    assert picture.stat().st_size > 1000
