"""Leaving a plateau: wider probes until rows differ, then shorter again."""

import math

import pytest
import torch

from hardstep import PolyStep
from hardstep.errors import ConfigError
from hardstep.optim import LeavePlateau, presets
from hardstep.schedules import Length
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full

EDGE = 30.0  # of the plateau, in lengths of the first probes' radius


def stairs(tensors):
    """Flat within a distance of the start, then falling to a far-away goal."""
    distance = (tensors["x"] - 100.0).norm(dim=1)
    start = math.sqrt(4 * 100.0**2)
    return torch.where(distance > start - EDGE, torch.full_like(distance, start), distance)


def optimizer(rules, seed=0):
    return PolyStep(
        {"x": torch.zeros(4)},
        subspace=Full(),
        solver=Standardized(RowSoftmax()),
        temperature=0.3,
        step_radius=Length(1.0),
        probe_radius=Length(2.0),
        rules=rules,
        seed=seed,
    )


@pytest.mark.filterwarnings("ignore:dead")
def test_without_the_rule_nothing_ever_moves():
    opt = optimizer(())
    for _ in range(30):
        opt.step(batched=stairs)
    assert torch.equal(opt.tensors["x"], torch.zeros(4))


@pytest.mark.parametrize("seed", range(3))
def test_the_rule_widens_until_rows_differ_and_then_shortens_again(seed):
    opt = optimizer((LeavePlateau(),), seed)
    radii, dead = [], []
    for _ in range(150):
        opt.step(batched=stairs)
        radii.append(opt.report.probe_radius)
        dead.append(opt.report.dead_share)
    first = dead.index(0.0)
    assert radii[: first + 1] == [min(2.0 * 2.0**n, 128.0) for n in range(first + 1)]
    assert max(radii) <= 2.0 * 64
    assert radii[-1] == 2.0
    assert opt.report.loss < 200 - EDGE - 50


@pytest.mark.filterwarnings("ignore:dead")
def test_a_plateau_on_the_best_level_is_left_alone():
    """All probes are at the goal: a search that has arrived does not set out again."""
    opt = optimizer((LeavePlateau(),))

    def bowl(tensors):
        return tensors["x"].sub(3.0).norm(dim=1).clamp_min(4.0)

    for _ in range(60):
        opt.step(batched=bowl)
    assert opt.report.dead_share == 1
    assert opt.report.probe_radius == 2.0
    assert opt.report.loss == pytest.approx(4.0)


@pytest.mark.filterwarnings("ignore:dead")
def test_the_reach_survives_a_checkpoint():
    def run(interrupted):
        opt = optimizer((LeavePlateau(),))
        for step in range(8):
            if interrupted and step == 3:
                saved, weights = opt.state_dict(), opt.tensors["x"].clone()
                opt = optimizer((LeavePlateau(),))
                opt.tensors["x"].copy_(weights)
                opt.load_state_dict(saved)
            opt.step(batched=stairs)
        return opt.tensors["x"], opt.report.probe_radius

    whole, cut = run(False), run(True)
    assert torch.equal(whole[0], cut[0])
    assert whole[1] == cut[1]


@pytest.mark.parametrize("option", [{"factor": 1.0}, {"most": math.inf}, {"factor": -2.0}])
def test_a_factor_that_does_not_widen_is_refused(option):
    with pytest.raises(ConfigError, match="LeavePlateau"):
        LeavePlateau(**option)


def test_the_preset_for_policies_has_the_rule():
    assert any(isinstance(rule, LeavePlateau) for rule in presets.policy(10).rules)
