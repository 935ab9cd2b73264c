"""Every quick check of the suite, each computed once, and pieces of some in closed form."""

import re
from functools import lru_cache

import numpy as np
import pytest

from hardstep import theory
from hardstep.theory import (
    Outcome,
    Setup,
    goldstein,
    judge,
    load_checks,
    piecewise_constant,
    smoothing_blowup,
    stable_schedules,
)

CHECKS = {check.id: check for check in load_checks() if check.kind != "P"}
LONG = {"G2", "G4", "G5", "G9"}  # two seconds or more
SAMPLED = ("A5", "C3", "D4", "E9", "F4", "G3", "H10", "I2", "J1", "K1", "L2")  # one of a group
EVERY = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in CHECKS]


@lru_cache
def outcome(identifier: str) -> Outcome:
    return judge(CHECKS[identifier], Setup())


@pytest.mark.slow
@pytest.mark.parametrize("identifier", EVERY)
def test_quick_check_passes_its_controls_fail_and_printed_figures_are_met(identifier):
    found = outcome(identifier)
    assert found.passed, found.evidence.measured
    assert found.sound, found.controls_failed
    assert found.paper_agrees in (None, True), found.evidence.paper


@pytest.mark.parametrize("identifier", EVERY)
def test_everything_is_reported_under_the_names_of_what_was_measured(identifier):
    evidence = outcome(identifier).evidence
    names = set(evidence.measured)
    assert names >= {*evidence.expected, *evidence.tols, *evidence.paper}
    assert all(set(control) == names for control in evidence.controls.values())


def test_the_docstring_says_which_checks_of_which_theorem_are_in_which_file():
    """Theorems that share a file are separated by commas; a blank repeats the theorem above."""
    said, theorems = {}, ""
    for line in re.findall(r"^    (.*  [A-L]\d.*)$", theory.__doc__, re.MULTILINE):
        theorems = line[:36].strip() or theorems
        module, *names = line[36:].split()
        said |= {name: (module, theorems) for name in names}
    known = load_checks()
    assert len(known) == 76
    assert {check.id for check in known} == set(said)
    assert {check.id for check in known if check.kind == "P"} == {"I7", "J2"}
    for check in known:
        module, theorems = said[check.id]
        assert check.function.__module__ == f"hardstep.theory.{module}"
        assert check.theorem in theorems.split(", ")
        assert 10 < len(check.title) < 80


@pytest.mark.slow
@pytest.mark.parametrize("identifier", SAMPLED)
def test_a_sampled_check_follows_the_seed_alone(identifier):
    measured = outcome(identifier).evidence.measured
    assert CHECKS[identifier].function(Setup()).measured == measured
    assert CHECKS[identifier].function(Setup(seed=1)).measured != measured


def test_the_uneven_step_jumps_by_one():
    below, above = smoothing_blowup.LOSSES["uneven step"](np.array([-1e-12, 1e-12]))
    assert above - below == pytest.approx(1.0)


def test_goldstein_margin():
    assert goldstein._margin(0.2, kink=1.0, radius=1.0) == 0.2
    assert goldstein._margin(0.9, kink=1.0, radius=2.0) == pytest.approx(0.1)
    assert goldstein._margin(0.2, kink=1.0, radius=0.99) == -0.2


def test_joint_percentile_agrees_with_one_block():
    law = goldstein.JOINT
    share = goldstein._percentile(law, 1, 0.999)
    assert law.expect(lambda r: (r < share * law.outer) * 1.0, share * law.outer) == pytest.approx(
        0.999, abs=1e-5
    )


def test_corner_probability_does_not_depend_on_the_grid():
    coarse, fine = (goldstein._log_corner(0.95, cells=cells)["norm"] for cells in (3000, 6000))
    assert coarse == pytest.approx(fine, abs=0.002)


def test_breaks_of_a_piecewise_constant_label():
    found = stable_schedules._breaks(lambda x: (x > 0.3).astype(float) + (x > 0.71), 0.0, 1.0, 10)
    assert found == pytest.approx([0.0, 0.3, 0.71, 1.0])


def test_hitting_probability_vanishes_beyond_the_longest_step():
    assert piecewise_constant._one_vertex_hit(0.121) == 0.0
    assert 0.15 < piecewise_constant._one_vertex_hit(0.1) < piecewise_constant._one_vertex_hit(0.09)
