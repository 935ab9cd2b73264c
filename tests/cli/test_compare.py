"""`compare` and `bench table`: what they refuse, before the first run, and how they say it."""

import json
from dataclasses import replace

import pytest

from hardstep import tasks
from hardstep.bench import SCHEMA, append
from hardstep.cli import compare
from hardstep.cli.bench import run_suite, run_table
from hardstep.cli.compare import CompareOptions, run_compare
from hardstep.cli.options import SuiteOptions, TableOptions
from hardstep.errors import ConfigError, HardstepError
from tests.cli.test_main import SUITE


def pretended(method, seed=0, **changes):
    """What a run would have recorded."""
    curve = {"value": [0.5], "steps": [2], "evaluations": [8], "seconds": [1.0],
             "cpu_seconds": [1.0]}  # fmt: skip
    return {"task": "mlp", "data": "digits", "method": method, "seed": seed, "options": {},
            "budget": {"axis": "time", "amount": 0.4}, "steps": 2, "evaluations": 8,
            "seconds": 1.0, "valid": 0.5, "test": 0.5, "test_reads": 1,
            "curve": curve} | changes  # fmt: skip


@pytest.fixture
def pretending(monkeypatch):
    """Runs that take no time."""
    monkeypatch.setattr(compare, "run_job", lambda job, **_: pretended(job.method, job.seed))


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": ["spsa.foo=1"]}, "no option of spsa is called 'foo'; there is a, c"),
        ({"options": ["mezo=1"]}, "METHOD.NAME=VALUE"),
        ({"options": ["mezo.mu=x"]}, "takes a number, got 'x'"),
        ({"methods": "mezo,openai"}, "did you mean 'openai-es'"),
        ({"match": "step"}, "did you mean 'steps'"),
        ({"budget": -1.0}, "got -1.0"),
        ({"options": ["spsa.a=-1"]}, "spsa: a must be a number > 0 and finite, got -1"),
        ({"methods": "mezo,random", "options": ["random.population=1"]}, ">= 2, got 1"),
        ({"methods": "mezo,polystep", "options": ["polystep.rank=2.5"]}, "rank .* got 2.5"),
        ({"methods": "mezo,adam", "options": ["adam.slope=1"]}, "slope is of the spikes"),
        ({"methods": "mezo,mezo,spsa"}, "--methods has mezo 2 times; name it once"),
        ({"budget": float("inf")}, "budget: steps must be a number > 0 and finite, got inf"),
        ({"budget": 100.5}, "budget: steps are counted, so give a whole number, got 100.5"),
        ({"match": "evals", "budget": 0.5}, "budget: evaluations are counted, .* got 0.5"),
        ({"match": "evals", "budget": float("nan")}, "budget: evaluations must be .* got nan"),
    ],
)
def test_what_a_later_method_refuses_is_refused_before_the_first_run(changes, message):
    arguments = {"task": "mlp", "methods": "mezo,spsa", "match": "steps", "budget": 2.0} | changes
    with pytest.raises(ConfigError, match=message):
        run_compare(CompareOptions(**arguments))


@pytest.mark.usefixtures("closed")
def test_adam_on_a_task_without_a_twin_is_refused_before_the_first_run(monkeypatch):
    monkeypatch.setattr(
        tasks, "find", lambda *_: replace(tasks.BY_DATA["digits"]["mlp"], twin=None)
    )
    with pytest.raises(ConfigError, match="adam needs the smooth twin of a task, and mlp has none"):
        run_compare(CompareOptions("mlp", methods="mezo,adam"))


@pytest.mark.usefixtures("pretending")
def test_a_picture_makes_its_folder_and_a_budget_is_shown_as_given(tmp_path, capsys):
    picture = tmp_path / "new" / "folder" / "c.png"
    options = CompareOptions("mlp", methods="mezo", match="time", budget=0.4, picture=picture)
    assert run_compare(options) == 0
    assert "budget 0.4 wall-clock seconds" in capsys.readouterr().out
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0.4, "0.4"), (50_000.0, "50,000"), (5_342_400.0, "5,342,400"), (1e-6, "1e-06")],
)
def test_a_table_shows_budgets_as_given(tmp_path, capsys, amount, shown):
    path = tmp_path / "runs.jsonl"
    append(path, pretended("polystep", budget={"axis": "time", "amount": amount}))
    assert run_table(TableOptions(path)) == 0
    assert f"mlp, digits, {shown} wall-clock seconds\n" in capsys.readouterr().out


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, pretended("polystep"))
    append(path, pretended("mezo"))
    append(path, pretended("polystep", study="solver", variant="greedy"))
    return path


def test_a_reference_is_a_method_or_a_variant(records):
    for reference in ("polystep", "mezo", "greedy"):
        assert run_table(TableOptions(records, reference)) == 0
    with pytest.raises(ConfigError, match="no --reference in .* 'polystepp'; did you mean 'polys"):
        run_table(TableOptions(records, "polystepp"))


def test_a_method_whose_runs_are_all_of_studies_is_a_reference(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, pretended("polystep", study="solver", variant="greedy"))
    assert run_table(TableOptions(path)) == 0


def test_records_without_a_reported_run_are_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.touch()
    with pytest.raises(HardstepError, match="has no run with a test score"):
        run_table(TableOptions(path))


def test_a_table_names_what_it_cannot_use_and_shows_the_rest(tmp_path, capsys):
    records, suite = tmp_path / "runs.jsonl", tmp_path / "suite.toml"
    bad = [{"budget": None}, {"metric": {"percent": True}}, {"test": "high"}, {"seed": "one"},
           {"seconds": "x"}, {"seconds": None}, {"study": 3}]  # fmt: skip
    lacking = pretended("spsa")
    del lacking["valid"], lacking["seconds"]
    append(records, pretended("polystep"))
    with records.open("a") as stream:
        for changes in bad:
            stream.write(json.dumps({"schema": SCHEMA, **pretended("mezo", **changes)}) + "\n")
    append(records, lacking)
    assert run_table(TableOptions(records)) == 0
    said = capsys.readouterr()
    assert "polystep against spsa: tie" in said.out
    assert "mezo" not in said.out
    for line in range(2, 2 + len(bad)):
        assert f"runs.jsonl, line {line}: " in said.err
    suite.write_text(SUITE)
    assert run_suite(SuiteOptions(suite, records)) == 0  # beside such records
    assert "0 of 1 runs are recorded" in capsys.readouterr().err
