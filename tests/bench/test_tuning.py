import itertools
import json
import math

import pytest
from typer.testing import CliRunner

from hardstep import presets, tasks
from hardstep.bench import load
from hardstep.bench.axes import Budget
from hardstep.bench.methods import KNOWN_OPTIONS, METHODS, Blueprint, build
from hardstep.bench.progress import Progress
from hardstep.bench.runs import Job, key_of
from hardstep.bench.tuning import (
    CONFIGURATIONS,
    Setting,
    Sweep,
    best,
    grid,
    settings_of,
    stage_options,
)
from hardstep.cli.commands import app
from hardstep.cli.tune import TuneOptions, run_tune
from hardstep.errors import ConfigError
from hardstep.nn import build as build_model

from .test_queue import STUDY, jobs_of, pretended, swept

TASK, SPIKING = (tasks.find(name, "digits") for name in ("mlp", "snn"))


def configurations(method, axis, fixed=None, stage=1):
    """What a stage tries around the centers."""
    settings = settings_of(TASK, method, axis, fixed)
    return list(grid(settings, {s.name: s.center for s in settings}, stage))


def made(method, options, steps=5, task=TASK):
    """The optimizer that those options make."""
    return build(method, Blueprint(task, build_model(task.model, 0), steps, 0), options)


@pytest.mark.parametrize("axis", ["steps", "evals", "time"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_nine_configurations_per_stage_of_options_it_knows(method, axis):
    names = {s.name for s in settings_of(TASK, method, axis)}
    assert names <= set(KNOWN_OPTIONS[method])
    for stage in (1, 2):
        found = configurations(method, axis, stage=stage)
        assert len(found) == len({json.dumps(c) for c in found}) == 9
        assert all(set(c) == names for c in found)
        made(method, found[0])


def test_populations_are_free_where_steps_are_not_what_is_equal():
    for method in ("openai-es", "cma-es", "eggroll", "random"):
        tuned = {axis: {s.name for s in settings_of(TASK, method, axis)}
                 for axis in ("steps", "evals", "time")}  # fmt: skip
        assert "population" not in tuned["steps"]
        assert "population" in tuned["evals"] & tuned["time"]


def test_where_evaluations_are_equal_polystep_is_tuned_around_its_frugal_settings():
    found = configurations("polystep", "evals")
    assert {c["preset"] for c in found} == {"frugal"}
    assert made("polystep", found[4], steps=100).settings == presets.frugal(100)
    assert {c["share"] for c in found} == {0.05, 0.1, 0.2}


def test_what_is_fixed_is_in_every_configuration_and_a_preset_is_tuned_around_its_own_radii():
    found = configurations("polystep", "evals", {"preset": "sketch", "rank": 2})
    assert {(c["preset"], c["rank"]) for c in found} == {("sketch", 2)}
    assert made("polystep", found[4], steps=100).settings == presets.sketch(100, rank=2)
    assert {c["particle_dim"] for c in found} == {8, 16, 32}
    at_steps = settings_of(TASK, "polystep", "steps", {"preset": "sketch"})
    assert [s.name for s in at_steps] == ["step_radius", "probe_radius", "preset"]


def test_beside_fixed_settings_a_last_one_has_three_levels():
    found = configurations("cma-es", "evals", {"sigma": 0.1})
    assert [c["population"] for c in found] == [16, 64, 256]


def test_where_everything_is_fixed_there_is_one_configuration():
    fixed = {"sigma": 0.1, "population": 8}
    assert configurations("random", "evals", fixed) == [fixed]


def test_the_surrogate_slope_is_tuned_where_there_is_one():
    assert [s.name for s in settings_of(SPIKING, "adam", "steps")] == ["learning_rate", "slope"]
    assert [s.name for s in settings_of(TASK, "adam", "steps")] == ["learning_rate"]
    centers = {"learning_rate": 1.0, "slope": math.sqrt(5)}
    slopes = {c["slope"] for c in grid(settings_of(SPIKING, "adam", "steps"), centers, 1)}
    assert sorted(slopes) == pytest.approx([0.5, math.sqrt(5), 10], rel=1e-5)


def test_slope_reaches_the_twin():
    adam = made("adam", {"slope": 7.5}, task=SPIKING)
    assert [m.slope for m in adam.twin.modules() if hasattr(m, "slope")] == [7.5]


def test_more_than_two_settings_meet_in_every_pair_of_levels():
    settings = [Setting(name, 1.0, 2.0) for name in "abcd"]
    found = list(grid(settings, dict.fromkeys("abcd", 1.0), 1))
    for one, two in itertools.combinations("abcd", 2):
        pairs = {(c[one], c[two]) for c in found}
        assert pairs == set(itertools.product((0.5, 1.0, 2.0), repeat=2))


def test_the_second_stage_is_recentered_on_the_best_of_the_first():
    def score(options):  # best at 0.6 and 0.3
        distance = math.log(options["sigma"] / 0.6) ** 2
        return -distance - math.log(options["learning_rate"] / 0.3) ** 2

    settings = settings_of(TASK, "openai-es", "steps")
    first = {json.dumps(o): (score(o), o) for o in stage_options(settings, 1, {})}
    assert best(first)[1] == pytest.approx({"sigma": 0.3, "learning_rate": 0.15})
    second = stage_options(settings, 2, first)
    ratios = sorted({round(o["sigma"] / 0.3, 5) for o in second})
    assert ratios == pytest.approx([3**-0.5, 1, 3**0.5], abs=1e-4)
    assert max(map(score, second)) > best(first)[0]


@pytest.fixture
def pretending(monkeypatch):
    """Runs of a sweep take no time; the longer the steps, the better."""

    def pretend(job, folder=None):
        return pretended(job, dict(job.options)["step_radius"])

    monkeypatch.setattr(Job, "run", pretend)


def test_the_command_keeps_the_test_set_closed_and_says_how_to_go_on(tmp_path, capsys):
    options = TuneOptions("mlp", "mezo", match="steps", budget=1, records=tmp_path / "tuning.jsonl")
    assert run_tune(options) == 0
    said = capsys.readouterr().out
    assert "best of 17 runs" in said
    runs = [line for line in said.splitlines() if line.startswith("stage ")]
    assert [line.endswith(" left") for line in runs] == [True] * 16 + [False]
    assert "hardstep compare mlp --methods polystep,mezo --match steps --budget 1 --option" in said
    loaded = load(tmp_path / "tuning.jsonl")
    assert len(loaded.records) == 17  # the center of the second stage is known from the first
    assert {r["test_reads"] for r in loaded.records} == {0}
    assert all("test" not in r for r in loaded.records)
    assert run_tune(options) == 0
    assert len(load(tmp_path / "tuning.jsonl").records) == 17


def test_what_the_command_says_to_run_next_can_be_run(tmp_path, capsys, pretending):
    records = tmp_path / "tuning.jsonl"
    assert run_tune(TuneOptions("mlp", budget=2_500, records=records)) == 0  # PolyStep, evals
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("compare with: hardstep ")
    result = CliRunner().invoke(app, [*command.split(), "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    (run,) = json.loads(result.stdout)
    top = max(load(records).records, key=lambda record: record["valid"])["options"]
    assert run["options"].pop("preset") == top.pop("preset") == "frugal"
    assert run["options"] == pytest.approx(top, rel=1e-5)


@pytest.mark.usefixtures("pretending")
def test_the_command_leaves_what_it_was_given(tmp_path):
    records = tmp_path / "tuning.jsonl"
    command = ["tune", "mlp", "--budget", "200", "--records", str(records)]
    result = CliRunner().invoke(app, [*command, "--option", "polystep.preset=sketch"])
    assert result.exit_code == 0, result.output
    assert "--option polystep.preset=sketch" in result.output.splitlines()[-1]
    assert {r["options"]["preset"] for r in load(records).records} == {"sketch"}
    for option in ("mezo.mu=1", "polystep.subspace=layer-wise"):  # which has no share to tune
        refused = CliRunner().invoke(app, [*command, "--option", option])
        assert isinstance(refused.exception, ConfigError)
    assert len(load(records).records) == 17


def test_a_configuration_that_diverged_is_never_the_best():
    scores = {"a": (math.nan, {"x": 1}), "b": (0.2, {"x": 2}), "c": (math.inf, {"x": 3})}
    assert best(scores) == (0.2, {"x": 2})


def test_a_study_with_a_sweep_tunes_every_variant_and_leaves_its_options(tmp_path):
    path = tmp_path / "swept.toml"
    path.write_text(STUDY.replace("budget = 2", "budget = 2\ntune = [7]"))
    first = jobs_of(path)
    assert len(first) == 2 * 9
    assert {job.stage for job in first} == {1}
    assert all(dict(j.options).get("solver") == ("greedy" if j.variant == "greedy" else None)
               for j in first)  # fmt: skip
    records = [pretended(job) | {"study": job.study, "variant": job.variant} for job in first]
    second = jobs_of(path, records)
    assert {(job.stage, job.variant) for job in second} == {(2, "softmax"), (2, "greedy")}
    records += [pretended(job) | {"study": job.study, "variant": job.variant} for job in second]
    last = jobs_of(path, records)
    assert [(job.stage, job.seed, job.variant) for job in last] == [
        (0, 0, "softmax"), (0, 0, "greedy"),
    ]  # fmt: skip
    assert set(dict(last[1].options)) == {"solver", "step_radius", "probe_radius"}


def test_a_sweep_with_nothing_to_tune_is_one_run_and_counted_as_such():
    given = (("population", 8), ("sigma", 0.1))
    jobs = [Job("mlp", "digits", "random", seed, Budget("evals", 80.0), given, sweep=(7,),
                sweep_amount=40.0) for seed in (0, 1)]  # fmt: skip
    assert Progress(jobs, []).total == 3
    (first,) = Sweep(jobs[0]).missing({})
    progress = Progress(jobs, [pretended(first)])
    assert (progress.left, progress.next_job(set()).seed) == (2, 0)


def test_a_sweep_comes_before_the_seeds_and_never_sees_the_test_set():
    jobs, known, stages = [swept(seed) for seed in (0, 1)], {}, []
    total = 2 * (2 * CONFIGURATIONS - 1) + 2
    assert Progress(jobs, []).total == total
    while job := (progress := Progress(jobs, list(known.values()))).next_job(set()):
        assert progress.left == total - len(known)
        stages.append(job.stage)
        assert job.budget.amount == (3.0 if job.stage else 9.0)
        near = -abs(dict(job.options)["sigma"] - 0.3) - abs(dict(job.options)["learning_rate"] - 1)
        known[job.key] = pretended(job, near)
        assert key_of(known[job.key]) == job.key
    assert stages == [1] * 18 + [2] * 16 + [0] * 2
    reported = [r for r in known.values() if "test" in r]
    best = max((r for r in known.values() if "test" not in r), key=lambda r: r["valid"])
    assert [r["options"] for r in reported] == [best["options"]] * 2
    assert {r["seed"] for r in reported} == {0, 1}


def test_a_sweep_alone_is_left_with_its_later_stages_and_ends_without_a_run_of_its_job():
    progress, left = Progress([], [], [Sweep(swept(sweep=(100,)))]), []
    while job := progress.next_job(set()):
        left.append(progress.left)
        progress.add(pretended(job, dict(job.options)["sigma"]))
    assert left == list(range(17, 0, -1))
    assert progress.left == 0


def test_a_metric_that_should_be_low_is_tuned_down():
    sweep, known = Sweep(swept(sweep=(100,))), {}
    while missing := sweep.missing(known):
        record = pretended(missing[0], dict(missing[0].options)["sigma"])
        metric = {"name": "MSE", "higher_is_better": False}
        known[missing[0].key] = record | {"metric": metric}
    assert dict(sweep.choose(known))["sigma"] == min(r["options"]["sigma"] for r in known.values())
