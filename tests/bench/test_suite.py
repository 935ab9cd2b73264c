"""What suites are read as, and what they refuse, before the first run."""

from pathlib import Path

import pytest

from hardstep.bench.runs import Job
from hardstep.bench.suite import read
from hardstep.cli.bench import run_suite
from hardstep.cli.options import SuiteOptions
from hardstep.errors import ConfigError, DataError

from .test_queue import SUITE

RUN = """
[[run]]
tasks = ["mlp"]
methods = ["mezo"]
seeds = [0, 1]
match = "steps"
budget = 2
"""
OPTIONS = """
[options.mlp.mezo]
mu = 0.5
"""
SUITES = Path(__file__).parents[2] / "benchmarks" / "suites"


def written(folder, text):
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def test_a_suite_expands_to_every_combination_with_its_options(tmp_path):
    jobs = read(written(tmp_path, SUITE))
    assert [(j.method, j.seed) for j in jobs] == [
        ("polystep", 0), ("polystep", 1), ("random", 0), ("random", 1),
    ]  # fmt: skip
    assert jobs[2].options == (("population", 4),)
    assert jobs[0].options == ()
    assert len({job.key for job in jobs}) == 4


@pytest.mark.parametrize("in_run", ["mlp", "mnist"])
@pytest.mark.parametrize("in_options", ["mlp", "mnist"])
def test_options_are_of_the_task_whatever_it_is_called(tmp_path, in_run, in_options):
    text = RUN.replace("mlp", in_run) + OPTIONS.replace("mlp", in_options)
    jobs = read(written(tmp_path, text))
    assert {(job.task, job.options) for job in jobs} == {("mlp", (("mu", 0.5),))}


def test_options_under_two_names_of_a_task_are_refused(tmp_path):
    text = RUN + OPTIONS + OPTIONS.replace("mlp", "mnist")
    with pytest.raises(ConfigError, match="options for 'mlp' twice, .* the second 'mnist'"):
        read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds", "seedz", "did you mean 'seeds'"),
        ('"mezo"', '"mezzo"', "did you mean 'mezo'"),
        ('["mlp"]', '["mlq"]', "mlq"),
        ("budget = 2", "[options.mlp.mezo]\nmuu = 1", "did you mean 'mu'"),
        ("budget = 2", "study = 's'\nvariants = { a = { muu = 1 } }", "did you mean 'mu'"),
        ('match = "steps"\n', "", "lacks match"),
        (RUN, "data = 'digits'", r"no \[\[run\]\]"),
        ("seeds = [0, 1]", "seeds = 3",
         r"seeds of a \[\[run\]\] in .* a list of different.* got 3"),
        ("seeds = [0, 1]", "seeds = [0.5]", r"different whole numbers such as .* got \[0.5\]"),
        ("seeds = [0, 1]", "seeds = []", r"whole numbers such as \[0, 1, 2\], got \[\]"),
        ("seeds = [0, 1]", "seeds = [1, 0, 1]", r"a list of different whole .* got \[1, 0, 1\]"),
        ('["mezo"]', "[]", r"methods of .* must be a list of names such as .* got \[\]"),
        ("budget = 2", "tune = [9]\ntune_budget = 2.5", "steps are counted, .* whole .* got 2.5"),
        ("budget = 2", "tune_budget = 2",
         r"a \[\[run\]\] of .* has tune_budget without tune; give"),
        ("budget = 2", "variants = { a = {} }",
         "has variants without study; give both, or neither"),
        ("budget = 2", "tune = 100", "tune of .* must be a list of whole numbers .* got 100"),
        ("budget = 2", 'budget = "50k"', "budget of .* must be a number > 0 .* got '50k'"),
        ("budget = 2", "budget = inf", "budget of .* must be a number > 0 and finite, got inf"),
        ("budget = 2", "tune_budget = 0", "tune_budget of .* must be a number > 0 .* got 0"),
        ("budget = 2", 'closed = "no"', "closed of .* must be true or false, got 'no'"),
        ("budget = 2", 'variants = ["a"]', r"variants of .* such as greedy = .* got \['a'\]"),
        ("budget = 2", "variants = { a = 1 }", "variants of .* must be tables .* got {'a': 1}"),
        ("budget = 2", "data = 3", r"data of a \[\[run\]\] in .* must be a name in quotes, got 3"),
        ("budget = 2", "study = 3", "study of .* must be a name in quotes, got 3"),
        ('"steps"', "1", "match of .* must be a name in quotes, got 1"),
        ('"steps"', '"step"', "no axis is called 'step'; did you mean 'steps'"),
        ('["mlp"]', '"mlp"', "tasks of .* must be a list of names .* got 'mlp'"),
        ('["mezo"]', "[1]", r"methods of .* must be a list of names .* got \[1\]"),
        ("[[run]]", "data = 3\n[[run]]", r"data of .*suite.toml must be a name in quotes, got 3"),
        ("[[run]]", "[run]", r"run of .* must be tables written as \[\[run\]\], got {"),
        ("budget = 2", "[options.snn]\nmezo = 3",
         "options of .* tables such as .* got .*'mezo': 3"),
        ("budget = 2", "[options]\nsnn = 3", "options of .* must be tables .* got {'snn': 3}"),
        ("budget = 2", '[options.snn.mezo]\nmu = "a"', "mezo: mu must be a number .* got 'a'"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_in_a_sentence(tmp_path, old, new, message):
    with pytest.raises(ConfigError, match=message) as refused:
        read(written(tmp_path, RUN.replace(old, new)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("axis", "amount"), [("steps", 120), ("evals", 50_000), ("time", 20)])
def test_without_a_budget_there_is_what_is_usual_on_the_axis(tmp_path, axis, amount):
    text = RUN.replace('"steps"', f'"{axis}"').replace("budget = 2", "")
    assert read(written(tmp_path, text))[0].budget.amount == amount


REPORTED = "seeds = [0, 1]\n"
TUNED = RUN.replace(REPORTED, "seeds = [100, 101]\ntune = [0]\n")


@pytest.mark.parametrize(
    ("other", "clash"),
    [
        (RUN, True),
        (RUN.replace("mlp", "mnist"), True),  # another name of it
        (RUN.replace("budget = 2", 'study = "x"\n[run.variants]\na = {mu = 0.1}'), True),
        (RUN.replace("budget = 2", "closed = true"), False),  # nothing is reported
        (RUN.replace("mezo", "spsa"), False),
        (RUN.replace("mlp", "int8"), False),
        (RUN.replace('"steps"', '"evals"'), False),
        (RUN.replace("budget = 2", 'data = "mnist"'), False),
    ],
)
def test_a_seed_is_tuned_on_or_reported_anywhere_in_the_file(tmp_path, other, clash):
    for text in (TUNED + other, other + TUNED):
        path = written(tmp_path, text)
        if clash:
            with pytest.raises(ConfigError, match="tunes on seed 0 and reports it, .* mezo on mlp"):
                read(path)
        else:
            assert len(read(path)) == 4


@pytest.mark.parametrize("name", ["ablations", "digits", "mnist-tuning", "paper", "pictures"])
def test_our_own_suites_are_read(name):
    assert read(SUITES / f"{name}.toml")


TWO = RUN.replace('["mezo"]', '["mezo", "adam"]')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO + "[options.mlp.adam]\nslope = 2.0", "adam: slope is of the spikes .* mlp has none"),
        (TWO.replace("adam", "random") + "[options.mlp.random]\npopulation = 1", ">= 2, got 1"),
        (TWO.replace("adam", "eggroll") + "[options.mlp.eggroll]\npopulation = 7", "even.* use 8"),
        (RUN + RUN.replace("mezo", "polystep") + "study = 'x'\nvariants = {a = {momentum = 1.5}}",
         "beta"),
    ],
)  # fmt: skip
def test_what_a_method_refuses_is_refused_before_the_first_run(
    tmp_path, monkeypatch, text, message
):
    monkeypatch.setattr(Job, "run", None)  # calling it would fail
    records = tmp_path / "runs.jsonl"
    with pytest.raises(ConfigError, match=message):
        run_suite(SuiteOptions(written(tmp_path, text), records))
    assert not records.exists()


def test_adam_without_a_twin_is_refused_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "run", None)
    own = tmp_path / "own.py"
    own.write_text(
        "from dataclasses import replace\nfrom hardstep import tasks\n"
        'task = replace(tasks.find("mlp"), name="own", twin=None, data_name="own")\n'
    )
    text = TWO.replace('"mlp"', f'"{own}:task"')
    with pytest.raises(ConfigError, match="adam needs the smooth twin of a task, and .* has none"):
        run_suite(SuiteOptions(written(tmp_path, text), tmp_path / "runs.jsonl"))


def test_records_that_are_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="is a folder; name a file in it with --records"):
        run_suite(SuiteOptions(written(tmp_path, RUN), tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "suite.toml cannot be read"),
        (b"data = [", "not TOML"),
        (b"data = '\xff'", "is not UTF-8 text, at byte 8; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "suite.toml").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "suite.toml")


def test_a_suite_begins_as_a_comparison_does_unless_it_says_otherwise(tmp_path):
    run = '[[run]]\ntasks = ["mlp"]\nmethods = ["polystep"]\nseeds = [0]\nmatch = "evals"\n'
    variants = 'study = "solver"\n[run.variants]\nsoftmax = {}\ngreedy = { solver = "greedy" }\n'
    for rest, options in (
        ("", [{"preset": "frugal"}]),
        ("budget = 1_000_000\n", [{}]),
        ("tune = [100]\n", [{}]),
        (variants, [{}, {"solver": "greedy"}]),
        ('[options.mlp.polystep]\npreset = "task"\n', [{"preset": "task"}]),
    ):
        assert [dict(job.options) for job in read(written(tmp_path, run + rest))] == options
