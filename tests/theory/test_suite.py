import json

import pytest

from hardstep.cli.theory import TheoryOptions, run_theory, select
from hardstep.errors import ConfigError
from hardstep.theory import Check, Evidence, Setup, judge, load_checks


def flawed(setup):
    """A check whose control passes."""
    return Evidence({"x": 1.0}, {"x": 1.0}, 0.1, {"same": {"x": 1.05}})


def test_every_identifier_of_the_specification_is_there_once():
    known = [check.id for check in load_checks()]
    assert len(known) == len(set(known)) == 76
    assert {check.group for check in load_checks()} == set("ABCDEFGHIJKL")


def test_groups_and_checks_are_selected_by_name_and_protocols_only_when_asked_for():
    known = load_checks()
    assert [c.id for c in select(known, "A1,K", False)] == ["A1", "K1", "K2"]
    assert all(c.kind != "P" for c in select(known, "", False))
    assert {c.id for c in select(known, "", True)} == {c.id for c in known}
    with pytest.raises(ConfigError, match="no check or group 'A11'; did you mean 'A1'"):
        select(known, "A11", False)


def test_the_command_writes_both_files_and_exits_0_when_all_is_sound(tmp_path, capsys):
    options = TheoryOptions(only="A4,K2", json=tmp_path / "t.json", html=tmp_path / "t.html")
    assert run_theory(options) == 0
    written = json.loads((tmp_path / "t.json").read_text())
    assert [row["id"] for row in written["checks"]] == ["A4", "K2"]
    keys = {"id", "theorem", "kind", "measured", "expected", "tol", "verdict", "control",
            "control_verdict", "paper_value", "seconds", "note"}  # fmt: skip
    assert all(keys <= row.keys() for row in written["checks"])
    page = (tmp_path / "t.html").read_text()
    assert page.count("<tr class=") >= 2
    assert "http" not in page
    assert "2 of 2 checks pass" in capsys.readouterr().out


def test_a_control_that_passes_makes_the_command_fail(monkeypatch, capsys):
    bad = Check("Z1", "none", "X", flawed)
    monkeypatch.setattr("hardstep.cli.theory.load_checks", lambda: [bad])
    assert run_theory(TheoryOptions()) == 1
    assert "CONTROL PASSES" in capsys.readouterr().out
    assert judge(bad, Setup()).passed
    assert not judge(bad, Setup()).sound


def test_every_expected_value_has_its_tolerance_and_bounds_are_asked_besides():
    evidence = Evidence(
        {}, {"a": 1.0, "b": 2.0}, 0.1, {}, tols={"b": 0.0}, also=lambda values: values["c"] > 0
    )
    assert evidence.ok({"a": 1.05, "b": 2.0, "c": 1.0})
    assert not evidence.ok({"a": 1.15, "b": 2.0, "c": 1.0})
    assert not evidence.ok({"a": 1.05, "b": 2.01, "c": 1.0})
    assert not evidence.ok({"a": 1.05, "b": 2.0, "c": 0.0})


def test_a_check_without_a_finite_control_is_refused():
    def bare(setup):
        return Evidence({"x": 1.0}, {}, 0.1, {})

    def infinite(setup):
        return Evidence({"x": 1.0}, {}, 0.1, {"c": {"x": float("inf")}})

    with pytest.raises(ConfigError, match="no control"):
        judge(Check("Z1", "", "X", bare), Setup())
    with pytest.raises(ConfigError, match="must be finite"):
        judge(Check("Z1", "", "X", infinite), Setup())
