import pytest
import torch
from torch import nn

from hardstep import Full, Length, PolyStep, presets
from hardstep.geometry import Haar, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.optim import Absorb, Momentum
from hardstep.schedules import Constant, PowerDecay, TimesTemperature
from hardstep.solvers import Sinkhorn
from hardstep.subspaces import LayerWise

# The paper's table, conditions i to vii.
PAPER = {
    "snn": "yes no yes no no assumed no",
    "int8": "yes yes yes no no assumed no",
    "argmax": "yes yes yes no no assumed no",
    "staircase": "yes yes yes no no assumed no",
    "moe": "yes no yes no no assumed no",
    "mnist": "yes yes yes no no assumed no",
    "etth1": "yes yes yes no no assumed no",
    "rl": "yes yes yes no no assumed no",
}
THEORY = "yes yes yes yes yes assumed assumed"


def optimizer(settings=None, **changes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    return PolyStep(model, settings, **changes)


def row(opt):
    return " ".join(c.status for c in opt.coverage().conditions[:7])


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_table_follows_from_its_presets(name):
    assert row(optimizer(getattr(presets, name)(100))) == PAPER[name]


def test_maxsat_and_theory_mode_are_as_in_the_paper():
    opt = PolyStep({"x": torch.zeros(50)}, presets.maxsat(100, 50))
    assert row(opt) == "yes yes yes no no assumed no"
    assert row(optimizer(presets.theory())) == THEORY


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        ("i", {"polytope": Simplex(1)}),
        ("ii", {"rotation": presets.snn(1).rotation}),
        ("iv", {"jitter": Jitter(probe=Mollifier(0.05))}),
        ("v", {"temperature": PowerDecay(1.0, 0.1)}),
        ("v", {"step_radius": TimesTemperature(2.0)}),
        ("v", {"step_radius": Length(PowerDecay(1.0, 0.4))}),
        ("v", {"step_radius": Length(PowerDecay(1.0, 1.2))}),
        ("viii", {"solver": Sinkhorn()}),
    ],
)
def test_changing_a_field_changes_its_row(number, changes):
    base = optimizer(presets.theory()).coverage()
    changed = optimizer(presets.theory(), **changes).coverage()
    assert base[number].status != "no"
    assert changed[number].status == "no"
    others = [c.number for c in base.conditions if c.status != changed[c.number].status]
    assert set(others) <= {number, "vii"}


def test_a_constant_temperature_is_flat_and_a_users_own_schedule_is_not_judged():
    assert optimizer(presets.theory(), temperature=Constant(0.5)).coverage()["v"].status == "yes"
    own = optimizer(presets.theory(), temperature=lambda step: 0.5)
    assert own.coverage()["v"].status == "unknown"


def test_a_projection_that_is_not_orthonormal_is_noticed():
    opt = PolyStep({"x": torch.zeros(30)}, presets.theory(), subspace=Full())
    inner = opt.subspace.expand
    opt.subspace.expand = lambda z: {name: 1.1 * change for name, change in inner(z).items()}
    assert opt.coverage()["iii"].status == "no"


def test_rules_are_outside_the_theorem():
    found = optimizer(rules=(Momentum(0.9), Absorb(5))).coverage()
    assert len(found.outside) == 2
    assert "Momentum" in found.outside[0]


def test_saturation_is_measured_as_defined():
    """Two steps with known costs: σ̄ weighs the share of rows above ε by the step radius."""
    opt = PolyStep({"x": torch.zeros(8)}, presets.theory(), polytope=Orthoplex(2), subspace=Full())
    expected, weights, spreads = 0.0, 0.0, []
    for scale in (0.1, 3.0):
        proposal = opt.propose()
        losses = scale * proposal.temperature * torch.rand(proposal.probes.shape[:3]).double()
        spread = (losses.amax((1, 2)) - losses.amin((1, 2))) / proposal.temperature
        expected += proposal.reach.step_radius * float((spread > 1).double().mean())
        weights += proposal.reach.step_radius
        spreads.append(spread)
        opt.advance(proposal, losses)
    seen = opt.coverage().statistics
    assert seen.saturation == pytest.approx(expected / weights)
    assert seen.spread == pytest.approx(float(torch.cat(spreads).max()))
    squares = [float(torch.where(s > 1, 0.0, s**2).mean()) for s in spreads]
    assert seen.square == pytest.approx(max(squares))
    assert 0 < seen.saturation < 1
    assert opt.coverage()["viii"].status == "measured"


def test_constant_rows_are_counted_and_radii_are_those_of_the_run():
    opt = optimizer(presets.theory())
    for _ in range(2):
        proposal = opt.propose()
        opt.advance(proposal, torch.zeros(proposal.probes.shape[:3]))
    seen = opt.coverage().statistics
    assert (seen.steps, seen.dead_share, seen.saturation) == (2, 1.0, 0.0)
    assert seen.longest_step == pytest.approx(1.0)
    assert seen.shortest_step == pytest.approx(2**-0.6)
    assert seen.shortest_probe == seen.longest_probe == pytest.approx(0.5)


def test_measurements_survive_saving():
    opt = optimizer(presets.theory())
    proposal = opt.propose()
    opt.advance(proposal, torch.rand(proposal.probes.shape[:3]))
    again = optimizer(presets.theory())
    again.load_state_dict(opt.state_dict())
    assert again.coverage() == opt.coverage()


def test_it_prints_a_row_per_hypothesis_with_its_reason():
    lines = str(optimizer(presets.snn(10)).coverage()).splitlines()
    assert len(lines) == 1 + 8 + 1
    assert "Biased" in lines[2]
    assert "none on the probe and the step radius" in lines[4]
    assert isinstance(presets.theory().rotation, Haar)
    assert LayerWise(4) == presets.theory().subspace
