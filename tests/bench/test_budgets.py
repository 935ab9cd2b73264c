"""What methods begin with where nothing is tuned."""

import pytest

from hardstep import tasks
from hardstep.bench.budgets import usual_options
from hardstep.bench.protocol import Budget, Trial, train
from hardstep.bench.suite import read
from hardstep.cli import compare
from hardstep.cli.compare import CompareOptions, run_compare

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
    task = tasks.find("mlp", "digits")
    assert usual_options(task, method, Budget(axis, amount)) == options


def test_cheap_steps_learn_more_from_few_evaluations_than_a_few_dear_ones():
    task, budget = tasks.find("int8", "digits"), Budget("evals", 10_000)
    usual = usual_options(task, "polystep", budget)
    cheap, dear = (
        train(Trial(task, "polystep", 10, budget, options)).record for options in (usual, {})
    )
    assert cheap["evaluations"] <= 10_000
    assert cheap["steps"] > 10 * dear["steps"]
    assert cheap["valid"] > dear["valid"] + 0.1  # a standard error of 143 images is 0.04


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ([], FRUGAL, True),
        (["polystep.rank=1"], {**FRUGAL, "rank": 1}, True),
        (["polystep.preset=task"], {"preset": "task"}, False),
    ],
)
def test_compare_says_when_it_takes_cheap_steps(monkeypatch, capsys, given, options, told):
    tried = []
    record = {"task": "mlp", "data": "digits", "method": "polystep", "seed": 0, "options": {},
              "budget": {"axis": "evals", "amount": 9e3}, "steps": 2, "evaluations": 8,
              "seconds": 1.0, "valid": 0.5, "test": 0.5}  # fmt: skip
    monkeypatch.setattr(
        compare, "run_trial", lambda trial, **_: tried.append(trial.options) or record
    )
    wanted = CompareOptions(
        "mlp", methods="polystep", budget=9_000, seeds=1, no_picture=True, options=given
    )
    assert run_compare(wanted) == 0
    assert tried == [options]
    assert ("presets.frugal" in capsys.readouterr().out) == told


def test_a_suite_begins_as_a_comparison_does_unless_it_says_otherwise(tmp_path):
    run = '[[run]]\ntasks = ["mlp"]\nmethods = ["polystep"]\nseeds = [0]\nmatch = "evals"\n'
    variants = 'study = "solver"\n[run.variants]\nsoftmax = {}\ngreedy = { solver = "greedy" }\n'
    path = tmp_path / "suite.toml"
    for rest, options in (
        ("", [FRUGAL]),
        ("budget = 1_000_000\n", [{}]),
        ("tune = [100]\n", [{}]),
        (variants, [{}, {"solver": "greedy"}]),
        ('[options.mlp.polystep]\npreset = "task"\n', [{"preset": "task"}]),
    ):
        path.write_text(run + rest)
        assert [dict(cell.options) for cell in read(path)] == options
