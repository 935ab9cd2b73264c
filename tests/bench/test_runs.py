import json
import re
from dataclasses import replace

import pytest

from hardstep import tasks
from hardstep.bench import append, load
from hardstep.bench.axes import Budget
from hardstep.bench.methods import KNOWN_OPTIONS, METHODS
from hardstep.bench.runs import Job, key_of, run_job
from hardstep.cli import compare
from hardstep.cli.compare import CompareOptions, parse_options, run_compare
from hardstep.errors import ConfigError, DataError
from hardstep.training import INTERRUPTED, Callback
from tests.tasks.test_files import STAIRS

from .test_queue import pretended

TASK = tasks.find("mlp", "digits")


def run(method, seed, budget, task=TASK, **options):
    """One run of the task."""
    return run_job(Job("mlp", "digits", method, seed, budget, tuple(options.items())), task=task)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_under_the_protocol_and_is_recorded(method, tmp_path):
    record = run(method, 1, Budget("steps", 3))
    assert (record["steps"], record["test_reads"]) == (3, 1)
    assert record["evaluations"] == record["curve"]["evaluations"][-1] > 0
    assert 0 <= record["test"] <= 1
    assert ("column_violation" in record) == (method == "polystep")
    append(tmp_path / "runs.jsonl", record)
    assert load(tmp_path / "runs.jsonl").records[0]["method"] == method
    assert method in KNOWN_OPTIONS


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_test_set_that_is_read_before_weights_are_chosen_stops_the_run(when):
    kept = []

    def data(seed):
        kept.append(TASK.data(seed))
        if when == "before":
            kept[0].open_test()
        return kept[0]

    def loss_fn(output, labels):
        kept[0].open_test()
        return TASK.loss_fn(output, labels)

    task = replace(TASK, data=data, **({"loss_fn": loss_fn} if when == "meanwhile" else {}))
    with pytest.raises(DataError, match="opened before training" if when == "before" else "sealed"):
        run("polystep", 0, Budget("steps", 2), task=task)
    assert kept[0].test_reads == (when == "before")


def test_evaluations_are_not_exceeded_and_are_used_up():
    for method, amount in (("polystep", 6_000), ("openai-es", 1_000), ("mezo", 201)):
        record = run(method, 0, Budget("evals", amount))
        each = record["evaluations"] / record["steps"]
        assert amount - each < record["evaluations"] <= amount


def test_time_is_kept():
    record = run("mezo", 0, Budget("time", 0.4))
    assert record["stopped"] == "finished"
    assert record["seconds"] >= 0.4
    assert record["steps"] > 1


def test_a_seed_fixes_a_run():
    first, again, other = (run("openai-es", seed, Budget("steps", 4)) for seed in (1, 1, 2))
    assert first["curve"]["value"] == again["curve"]["value"]
    assert first["curve"]["value"] != other["curve"]["value"]


def test_options_reach_the_method():
    slow = run("polystep", 0, Budget("steps", 8), step_radius=1e-6)
    fast = run("polystep", 0, Budget("steps", 8))
    assert fast["valid"] > slow["valid"] + 0.2


def test_whole_numbers_stay_whole():
    assert parse_options(["random.population=5", "random.sigma=0.5"], ["random"]) == {
        "random": {"population": 5, "sigma": 0.5}
    }


def test_a_step_beyond_the_budget_is_refused():
    with pytest.raises(ConfigError, match=r"one step of polystep on mlp takes 1,908 evaluations"):
        run("polystep", 0, Budget("evals", 1_900))


def test_data_that_fit_in_one_batch_can_be_compared_on_every_axis():
    small = replace(TASK, batch_size=5_000)
    for axis, amount in (("evals", 20), ("time", 0.1)):
        assert run("mezo", 0, Budget(axis, amount), task=small)["steps"] >= 1


def test_with_plan_reuse_evaluations_are_planned_and_kept(tmp_path):
    job = Job("mlp", "digits", "polystep", 0, Budget("evals", 20_000), (("reuse", 10),))
    first = job.run(tmp_path)
    solves = 20_000 // 1_908
    assert solves * 1_908 <= first["evaluations"] <= 20_000
    (planned,) = re.findall(r"steps=(\d+)", first["settings"])  # of the schedule of the radius
    assert int(planned) == pytest.approx(first["steps"], rel=0.1)
    assert len(first["curve"]["steps"]) > 10
    again = job.run(tmp_path)  # as after a kill between the last step and the record
    for name in ("steps", "evaluations", "valid", "test"):
        assert again[name] == first[name]


def test_a_run_that_diverges_is_recorded_and_is_behind(tmp_path, capsys):
    own, records, picture = (tmp_path / name for name in ("own.py", "runs.jsonl", "curves.png"))
    own.write_text(STAIRS)
    options = CompareOptions(f"{own}:sine", methods="mezo,spsa", match="steps", budget=30, seeds=1,
                             options=["mezo.learning_rate=1e30"], records=records,
                             picture=picture)  # fmt: skip
    assert run_compare(options) == 0
    said = capsys.readouterr().out
    assert "mezo: 1 of 1 runs diverged" in said
    assert "mezo against spsa: loss" in said
    assert [record["test"] is None for record in load(records).records] == [True, False]
    assert picture.stat().st_size > 1000


def test_a_budget_too_short_for_a_step_is_one_sentence():
    with pytest.raises(ConfigError, match=r"1e-06 seconds is over before the first step of mezo"):
        run("mezo", 0, Budget("time", 1e-6))
    with pytest.raises(ConfigError, match="a budget is so many"):
        Budget("steps", float("inf"))


def test_keys_survive_a_file():
    job = Job("mlp", "digits", "random", 3, Budget("time", 7), (("sigma", 0.1 + 0.2),))
    assert key_of(json.loads(json.dumps(pretended(job)))) == job.key


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ([], {"preset": "frugal"}, True),
        (["polystep.rank=1"], {"preset": "frugal", "rank": 1}, True),
        (["polystep.preset=task"], {"preset": "task"}, False),
    ],
)
def test_compare_says_when_it_takes_cheap_steps(monkeypatch, capsys, given, options, told):
    tried = []
    monkeypatch.setattr(
        compare, "run_job", lambda job, **_: tried.append(dict(job.options)) or pretended(job)
    )
    wanted = CompareOptions(
        "mlp", methods="polystep", budget=9_000, seeds=1, no_picture=True, options=given
    )
    assert run_compare(wanted) == 0
    assert tried == [options]
    assert ("presets.frugal" in capsys.readouterr().out) == told


class Watching(Callback):
    """Keeps the step radius of every step; may stop the run after some."""

    def __init__(self, stop_after=None):
        self.radii, self.stop_after = [], stop_after

    def on_step(self, run, report):
        self.radii.append(report.step_radius)
        if len(self.radii) == self.stop_after:
            run.stop(INTERRUPTED)


def play(amount, **options):
    """One run of a policy that may spend so many interactions."""
    job = Job("acrobot", "gymnasium", "polystep", 3, Budget("interactions", amount))
    return run_job(job, **options)


@pytest.mark.parametrize("amount", [100_000, 200_000])
def test_schedules_span_the_interactions_that_a_run_may_spend(amount):
    seen = Watching()
    record = play(amount, watching=[seen])
    assert record["interactions"] >= amount
    assert record["steps"] < tasks.find("acrobot", "gymnasium").steps / 2
    start, end = seen.radii[0], seen.radii[-1]
    assert start > 10 * end  # its schedule has come to its end all the same


def test_a_run_limited_by_interactions_resumes_as_if_it_had_not_stopped(tmp_path):
    whole, saved = play(150_000), tmp_path / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        play(150_000, checkpoint=saved, watching=[Watching(stop_after=5)])
    rest = play(150_000, checkpoint=saved)
    same = ("steps", "interactions", "evaluations", "valid", "test")
    assert [rest[name] for name in same] == [whole[name] for name in same]
    assert rest["curve"]["value"] == whole["curve"]["value"]
