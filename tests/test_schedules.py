import math

import pytest

from hardstep.errors import ConfigError
from hardstep.schedules import (
    Constant,
    Cosine,
    Length,
    Linear,
    PowerDecay,
    TimesTemperature,
    length_at,
    temperature_at,
    value_at,
)


def test_a_number_and_a_constant_are_the_same_at_every_step():
    for step in (0, 7, 10_000):
        assert value_at(0.5, step) == value_at(Constant(0.5), step) == 0.5


def test_any_callable_of_the_step_is_a_schedule():
    assert value_at(lambda step: 2 * step + 1, 3) == 7.0
    assert isinstance(value_at(lambda step: 1, 0), float)
    assert Length(lambda step: step + 0.5).at(2, 100.0) == 2.5


def test_linear_runs_from_start_to_end_and_stays_there():
    schedule = Linear(0.3, 0.5, 10)
    assert schedule(0) == 0.3
    assert schedule(5) == pytest.approx(0.4, abs=1e-15)
    assert schedule(10) == pytest.approx(0.5, abs=1e-15)
    assert schedule(11) == schedule(10_000) == schedule(10)


def test_cosine_follows_its_formula_and_stays_at_the_end():
    schedule = Cosine(10.0, 0.1, 100)
    assert schedule(0) == 10.0
    assert schedule(50) == pytest.approx(5.05, abs=1e-14)
    assert schedule(25) == pytest.approx(0.1 + 0.5 * 9.9 * (1 + math.cos(math.pi / 4)), abs=1e-14)
    assert schedule(100) == schedule(5_000) == 0.1
    values = [schedule(step) for step in range(101)]
    assert values == sorted(values, reverse=True)


def test_power_decay_starts_at_start_and_falls_with_its_exponent():
    schedule = PowerDecay(2.0, 0.5)
    assert schedule(0) == 2.0
    assert schedule(3) == 1.0
    assert schedule(99) == pytest.approx(0.2, abs=1e-15)
    assert PowerDecay(2.0, 0.0)(50) == 2.0


def test_a_length_ignores_the_temperature_and_a_multiple_is_scaled_by_it():
    for value in (3.0, Constant(3.0)):
        assert Length(value).at(4, 0.5) == 3.0
        assert TimesTemperature(value).at(4, 0.5) == 1.5


def test_units_do_not_depend_on_whether_the_value_is_scheduled():
    falling = Linear(4.0, 2.0, 10)
    assert Length(falling).at(5, 0.1) == Length(3.0).at(5, 0.1) == 3.0
    assert TimesTemperature(falling).at(5, 0.1) == TimesTemperature(3.0).at(5, 0.1)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_temperatures_that_are_not_positive_numbers_are_refused(value):
    for schedule in (value, lambda step: value):
        with pytest.raises(ConfigError, match=f"temperature must be > 0, got {value} at step 3"):
            temperature_at(schedule, 3)
    assert temperature_at(0.5, 3) == 0.5


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_radii_that_are_not_positive_lengths_are_refused_by_name(value):
    for radius in (Length(value), TimesTemperature(lambda step: value)):
        with pytest.raises(ConfigError, match=f"probe_radius must be .* got {value} at step 2"):
            length_at("probe_radius", radius, 2, 1.0)
    assert length_at("probe_radius", TimesTemperature(2.0), 2, 0.25) == 0.5


@pytest.mark.parametrize("kind", [Linear, Cosine])
def test_schedules_over_no_steps_are_refused(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__}: steps must be .* >= 1, got 0"):
        kind(1.0, 0.0, 0)


@pytest.mark.parametrize("exponent", [-0.1, math.nan])
def test_a_power_that_does_not_decay_is_refused(exponent):
    with pytest.raises(ConfigError, match=f"exponent must be .* >= 0 .*got {exponent}"):
        PowerDecay(1.0, exponent)


@pytest.mark.parametrize("value", ["a", None, Length(1.0), True])
def test_what_is_neither_a_number_nor_a_schedule_is_no_radius(value):
    for kind in (Length, TimesTemperature):
        with pytest.raises(ConfigError, match=f"^{kind.__name__}: value must be a number or a sch"):
            kind(value)


@pytest.mark.parametrize("value", ["a", None, math.nan])
def test_schedules_run_between_finite_numbers(value):
    for make in (
        lambda: Linear(value, 1.0, 5),
        lambda: Linear(1.0, value, 5),
        lambda: Cosine(value, 1.0, 5),
        lambda: Cosine(1.0, value, 5),
        lambda: PowerDecay(value),
        lambda: Constant(value),
    ):
        with pytest.raises(ConfigError, match=f"must be a finite number, got {value!r}"):
            make()


def test_equal_schedules_compare_equal():
    assert Cosine(1.0, 0.1, 5) == Cosine(1.0, 0.1, 5)
    assert Cosine(1.0, 0.1, 5) != Cosine(1.0, 0.1, 6)
    assert Length(1.0) != TimesTemperature(1.0)
