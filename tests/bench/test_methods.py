"""Options of methods: values that are none are refused with method, option and value."""

import pytest

from hardstep import tasks
from hardstep.bench.axes import Budget
from hardstep.bench.methods import (
    KNOWN_OPTIONS,
    METHODS,
    Blueprint,
    build,
    check_method,
    check_options,
    usual_options,
)
from hardstep.bench.options import WORDS
from hardstep.bench.runs import Job, run_job
from hardstep.errors import ConfigError
from hardstep.nn import build as build_model

MLP = tasks.find("mlp")


@pytest.mark.parametrize(
    ("method", "option", "value", "wanted"),
    [
        ("openai-es", "sigma", "x", "a number > 0 and finite"),
        ("openai-es", "population", 32.0, "a whole number >= 1"),
        ("openai-es", "population", "a", "a whole number >= 1"),
        ("random", "population", "a", "a whole number >= 1"),
        ("polystep", "rank", 2.5, "a whole number >= 1"),
        ("polystep", "rank", 0, "a whole number >= 1"),
        ("polystep", "particle_dim", 2.5, "a whole number >= 1"),
        ("polystep", "redraw", -1, "a whole number >= 0"),
        ("polystep", "solver", 3, "a word in quotes"),
        ("polystep", "temperature", "x", "a number > 0 and finite"),
        ("polystep", "temperature_end", 0, "a number > 0 and finite"),
        ("polystep", "momentum", -0.1, "a number >= 0 and finite"),
        ("adam", "learning_rate", "x", "a number > 0 and finite"),
        ("adam", "slope", True, "a number > 0 and finite"),
    ],
)
def test_a_value_that_is_none_is_named_with_its_method(method, option, value, wanted):
    with pytest.raises(ConfigError) as refused:
        check_options(method, {option: value})
    assert str(refused.value) == f"{method}: {option} must be {wanted}, got {value!r}"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [[], {}, None, "no such word", float("nan"), True])
def test_no_value_of_any_option_is_a_traceback(method, value):
    for option in KNOWN_OPTIONS[method]:
        with pytest.raises(ConfigError, match=f"{method}: {option} |no {option} is called"):
            check_method(MLP, method, {option: value})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["mlp", "snn", "moe"])
def test_what_can_be_run_is_not_refused(name, method):
    alone = ("particle_dim", "num_probes", "step_decay", "column_penalty")  # or of some words only
    usual = {
        option: {"rank": 2, "population": 4, "redraw": 0, "reuse": 3}.get(option, 0.5)
        for option in KNOWN_OPTIONS[method]
        if option not in (*WORDS, *alone)
    }
    if name != "snn":
        usual.pop("slope", None)
    if method == "polystep":
        usual["solver"] = "kl"  # whose penalty is among them
    task = tasks.find(name)
    model = build_model(task.model, 0)
    for options in ({}, usual):
        check_method(task, method, options)
        assert build(method, Blueprint(task, model, 5, 0), options).model is model


@pytest.mark.parametrize("method", ["openai-es", "eggroll", "mezo"])
def test_a_rate_with_an_end_is_annealed_over_the_run(method):
    blueprint = Blueprint(MLP, build_model(MLP.model, 0), 10, 0)
    constant = build(method, blueprint, {"learning_rate": 0.4})
    annealed = build(method, blueprint, {"learning_rate": 0.4, "learning_rate_end": 0.0})
    if method == "openai-es":  # which searches coordinates, for a network
        constant, annealed = constant.population, annealed.population
    assert constant.learning_rate == 0.4
    assert [annealed.learning_rate(step) for step in (0, 5, 10)] == pytest.approx([0.4, 0.2, 0.0])
    with pytest.raises(ConfigError, match=f"{method}: learning_rate_end needs .* got 0.1 alone"):
        build(method, blueprint, {"learning_rate_end": 0.1})


def test_a_slope_is_refused_where_nothing_spikes():
    with pytest.raises(ConfigError, match="adam: slope .* mlp has none, got 2.0; leave it out"):
        check_method(MLP, "adam", {"slope": 2.0})
    check_method(tasks.find("snn"), "adam", {"slope": 2.0})


FRUGAL = {"preset": "frugal"}
OWN = 120 * 1_908  # steps and evaluations a step of mlp's own settings


@pytest.mark.parametrize(
    ("method", "axis", "amount", "options"),
    [
        ("polystep", "evals", OWN - 1, FRUGAL),
        ("polystep", "evals", OWN, {}),
        ("polystep", "steps", 2, {}),
        ("polystep", "time", 2, {}),
        ("openai-es", "evals", 1_000, {}),
    ],
)
def test_polystep_takes_cheap_steps_where_its_own_would_not_last(method, axis, amount, options):
    assert usual_options(MLP, method, Budget(axis, amount)) == options


def test_cheap_steps_learn_more_from_few_evaluations_than_a_few_expensive_ones():
    task, budget = tasks.find("int8", "digits"), Budget("evals", 10_000)
    usual = usual_options(task, "polystep", budget)
    cheap, costly = (
        run_job(Job("int8", "digits", "polystep", 10, budget, tuple(options.items()), closed=True))
        for options in (usual, {})
    )
    assert cheap["evaluations"] <= 10_000
    assert cheap["steps"] > 10 * costly["steps"]
    assert cheap["valid"] > costly["valid"] + 0.1  # a standard error of 143 images is 0.04
