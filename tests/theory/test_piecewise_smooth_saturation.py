from dataclasses import replace

import pytest

from hardstep import RowWise, presets, tasks
from hardstep.errors import DataError
from hardstep.geometry import Haar, Mollifier, Orthoplex
from hardstep.schedules import length_at, temperature_at
from hardstep.theory import piecewise_smooth_saturation as saturation
from hardstep.theory import trained_networks
from hardstep.theory.suite import Setup, merge


def test_refuted_rate_of_one_row():
    assert saturation._refuted_rate(1) == pytest.approx(0.99)


def test_theory_mode_keeps_temperature_and_lengths_and_meets_the_settable_conditions():
    settings = saturation.theory_mode(presets.argmax(3180))
    assert settings.subspace == presets.argmax(3180).subspace
    assert isinstance(settings.rotation, Haar)
    assert (settings.polytope, settings.rules) == (Orthoplex(8), ())
    assert settings.jitter.probe == settings.jitter.step == Mollifier(0.05)
    for step, expected in ((0, 32.0), (3, 32.0 * 4**-0.6)):
        assert temperature_at(settings.temperature, step) == 5.0
        assert length_at("step", settings.step_radius, step, 5.0) == pytest.approx(expected)
        assert length_at("probe", settings.probe_radius, step, 5.0) == pytest.approx(2.0)


def test_cooling_leaves_lengths():
    settings = saturation.theory_mode(presets.snn(3180), cooling=50.0)
    assert temperature_at(settings.temperature, 0) == pytest.approx(0.01)
    assert length_at("step", settings.step_radius, 0, 0.01) == pytest.approx(1.0)
    assert length_at("probe", settings.probe_radius, 0, 0.01) == pytest.approx(0.5)


def test_settings_are_row_wise_and_scheduled_over_the_papers_steps():
    expected = presets.int8(3180).changed(subspace=RowWise(8))
    assert saturation.tuned_settings("int8") == expected


def test_rows_are_logged_and_saturate_when_cooled():
    settings = saturation.tuned_settings("staircase")
    warm = saturation.train_and_log("staircase", settings, Setup(), 3)
    assert (warm.data, warm.num_rows % 3, warm.saturation) == ("digits", 0, 0.0)
    assert 0.0 < warm.spread < 1.0
    assert saturation.train_and_log("staircase", settings, Setup(), 3) == warm
    cold = saturation.train_and_log("staircase", saturation.theory_mode(settings, 50.0), Setup(), 3)
    assert cold.saturation > 0.0
    assert cold.facts("x") == {"x: σ̄": cold.saturation, "x: max Δ/ε": cold.spread}


def test_acceptance_of_saturation():
    good = merge(saturation.Log("", 0, 0.0, 0.5).facts(name) for name in saturation.PRINTED)
    assert saturation.rarely_saturates(good)
    assert saturation.rarely_saturates(good | {"snn: σ̄": 5e-4, "snn: max Δ/ε": 2.0})
    assert not saturation.rarely_saturates(good | {"snn: σ̄": 2e-3})
    assert not saturation.rarely_saturates(good | {"int8: σ̄": 1e-9})
    assert not saturation.rarely_saturates(good | {"argmax, theory mode: max Δ/ε": 1.1})


def test_digits_stand_in_for_missing_data(monkeypatch):
    def missing(seed):
        raise DataError("not here")

    def find(name, data="digits"):
        task = tasks.find(name, data)
        return replace(task, data=missing) if data == "mnist" else task

    monkeypatch.setattr(trained_networks, "find", find)
    task, data = trained_networks.load_data("snn", Setup(quick=False), 0)
    assert (task.name, data.name) == ("snn", "digits")
