import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from threading import Thread

import pytest
from llvmlite.binding import get_host_cpu_name

from hardstep.bench import load
from hardstep.bench.cells import Cell, Job, key_of
from hardstep.bench.protocol import Budget
from hardstep.bench.running import Progress, _interrupts_held, carry_out
from hardstep.bench.suite import read
from hardstep.bench.tuning import CONFIGURATIONS
from hardstep.cli.bench import format_duration, run_suite, run_table
from hardstep.cli.options import SuiteOptions, TableOptions
from hardstep.errors import ConfigError, DataError

SUITE = """
data = "digits"
[[run]]
tasks = ["mlp"]
methods = ["polystep", "random"]
seeds = [0, 1]
match = "steps"
budget = 2
[options.mlp.random]
population = 4
"""
STUDY = """
[[run]]
study = "solver"
tasks = ["mlp"]
methods = ["polystep"]
seeds = [0]
match = "steps"
budget = 2
[run.variants]
softmax = {}
greedy = { solver = "greedy" }
"""

SWEPT = STUDY.replace("budget = 2", "budget = 2\ntune = [7]")


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


def jobs_of(path, records=()):
    known = {key_of(record): record for record in records}
    return [job for cell in read(path) for job in cell.todo(known)]


def pretended(job, valid=0.5):
    """What a run of that job would have recorded."""
    curve = {"value": [valid], "steps": [2], "evaluations": [8], "seconds": [1.0],
             "cpu_seconds": [1.0]}  # fmt: skip
    budget = {"axis": job.budget.axis, "amount": job.budget.amount}
    record = {"task": job.task, "data": job.data, "method": job.method, "seed": job.seed,
              "budget": budget, "steps": 2, "valid": valid, "options": dict(job.options),
              "test_reads": 0, "curve": curve, "seconds": 1.0, "evaluations": 8}  # fmt: skip
    return record if job.stage else record | {"test": valid, "test_reads": 1}


def test_a_suite_expands_to_every_combination_with_its_options(suite):
    jobs = jobs_of(suite)
    assert [(j.method, j.seed) for j in jobs] == [
        ("polystep", 0), ("polystep", 1), ("random", 0), ("random", 1),
    ]  # fmt: skip
    assert jobs[2].options == (("population", 4),)
    assert jobs[0].options == ()
    assert len({job.key for job in jobs}) == 4


def test_runs_are_recorded_skipped_when_known_and_tabulated(suite, tmp_path, capsys):
    records = tmp_path / "runs.jsonl"
    wanted = {job.key for job in jobs_of(suite)}
    assert run_suite(SuiteOptions(suite, records)) == 0
    captured = capsys.readouterr()
    assert [line.split("]")[0] for line in captured.out.splitlines()] == [
        "[1/4", "[2/4", "[3/4", "[4/4",
    ]  # fmt: skip
    loaded = load(records)
    assert {key_of(r) for r in loaded.records} == wanted
    assert all(r["peak_memory_bytes"] > 2**20 for r in loaded.records)
    assert all(r["command"] and r["date"] for r in loaded.records)
    assert all(f"({get_host_cpu_name()})" in r["machine"] for r in loaded.records)
    assert run_suite(SuiteOptions(suite, records)) == 0
    captured = capsys.readouterr()
    assert "4 of 4 runs are recorded" in captured.err
    assert captured.out == ""
    assert run_table(TableOptions(records)) == 0
    out = capsys.readouterr().out
    assert "at equal steps" in out
    assert "polystep at equal steps: " in out
    assert not (tmp_path / "runs.partial").exists()


def test_a_study_with_a_sweep_tunes_every_variant_and_leaves_its_options(tmp_path):
    path = tmp_path / "swept.toml"
    path.write_text(SWEPT)
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
    cell = Cell("mlp", "digits", "random", Budget("evals", 80.0), (0, 1), given, (7,), 40.0)
    assert cell.size == 3
    (first,) = cell.todo({})
    assert [job.seed for job in cell.todo({first.key: pretended(first)})] == [0, 1]


def test_only_what_is_missing_is_run(suite, tmp_path, monkeypatch):
    ran = []

    def pretend(self, folder):
        ran.append((self.method, self.seed))
        if len(ran) == 3:
            raise KeyboardInterrupt
        return pretended(self)

    monkeypatch.setattr(Job, "run", pretend)
    records = tmp_path / "runs.jsonl"
    assert run_suite(SuiteOptions(suite, records)) == 130
    assert len(load(records).records) == 2
    assert run_suite(SuiteOptions(suite, records)) == 0
    assert ran == [("polystep", 0), ("polystep", 1), ("random", 0), ("random", 0), ("random", 1)]
    assert jobs_of(suite, load(records).records) == []


def test_two_processes_give_the_same_scores_as_one(suite, tmp_path):
    for number in (1, 2):
        assert run_suite(SuiteOptions(suite, tmp_path / f"{number}.jsonl", processes=number)) == 0
    one, two = (
        {key_of(r): (r["test"], r["curve"]["value"]) for r in load(tmp_path / f"{n}.jsonl").records}
        for n in (1, 2)
    )
    assert one == two


def test_a_part_of_a_suite_is_run_alone(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "run", lambda self, folder: pretended(self))
    records = tmp_path / "runs.jsonl"
    part = SuiteOptions(suite, records, tasks="mlp", methods="random", match="steps")
    assert run_suite(part) == 0
    assert [(r["method"], r["seed"]) for r in load(records).records] == [
        ("random", 0),
        ("random", 1),
    ]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"tasks": "mpl"}, "task of .* is called 'mpl'; did you mean 'mlp'"),
        ({"methods": "random,spsa"}, "method of .* is called 'spsa'; there is polystep, random"),
        ({"match": "evals"}, "axis of .* is called 'evals'; there is steps"),
    ],
)
def test_a_part_that_is_not_there_is_refused(suite, tmp_path, part, sentence):
    with pytest.raises(ConfigError, match=sentence):
        run_suite(SuiteOptions(suite, tmp_path / "runs.jsonl", **part))


def test_the_time_left_is_what_a_unit_of_budget_took_in_the_runs_most_alike():
    cells = [swept(), Cell("mlp", "digits", "openai-es", Budget("evals", 500.0), (0, 1))]
    job = Job("snn", "digits", "random", 5, Budget("steps", 2.0))
    first = pretended(job) | {"seconds": 8.0}  # 4 s a step, of another method and task
    progress = Progress(cells, [first])
    budget = 17 * 2 * 3.0 + 2 * 9.0  # sweep, then seeds
    by_run = 2 * 8.0  # of evaluations nothing is known
    assert progress.seconds_left(1) == pytest.approx(4 * budget + by_run)
    known = progress.next_job(set())
    progress.add(pretended(known) | {"seconds": 6.0})  # 2 s a step of this very cell
    assert progress.seconds_left(2) == pytest.approx((2 * (budget - 3.0) + 2 * 7.0) / 2)


class Endless(Job):
    """A run that says it has begun and never ends, but saves itself on Ctrl-C."""

    def run(self, folder):
        begun = folder / f"begun {self.seed}"
        begun.touch()
        try:
            while True:
                time.sleep(0.01)
        finally:
            begun.rename(folder / f"saved {self.seed}")


def test_leaving_a_suite_interrupts_its_workers_and_they_save_themselves(tmp_path):
    jobs = [Endless("mlp", "digits", "random", seed, Budget("steps", 2.0)) for seed in (0, 1)]
    progress = Progress([], [])
    progress.next_job = lambda busy: next((job for job in jobs if job.key not in busy), None)

    def interrupt():
        while len(list(tmp_path.glob("begun *"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(carry_out(progress, tmp_path, 2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved 0", "saved 1"]


TWO_RUNS = """
[[run]]
data = "digits"
tasks = ["mlp"]
methods = ["random"]
seeds = [0, 1]
match = "steps"
budget = {}
"""


def end_session(leader):
    """Nothing that a failed test started goes on, where processes are listed."""
    listed = os.listdir("/proc") if os.path.isdir("/proc") else []
    for process in filter(str.isdigit, listed):
        with suppress(ProcessLookupError):
            if os.getsid(int(process)) == leader:
                os.kill(int(process), signal.SIGKILL)


SLOW_START = """
import os, sys, time
if "--multiprocessing-fork" in sys.orig_argv:
    try:
        os.mkdir(os.environ["FIRST_WORKER"])
    except FileExistsError:
        time.sleep(8)
"""


@pytest.mark.parametrize("slow", [False, True], ids=["", "while its second worker starts"])
def test_kill_ends_a_suite_in_the_background_and_its_workers(tmp_path, slow):
    path, records = tmp_path / "suite.toml", tmp_path / "suite.jsonl"
    path.write_text(TWO_RUNS.format(1) + TWO_RUNS.format(100_000_000))  # short, endless
    code = "from hardstep.cli.main import main; main()"
    command = shlex.join([sys.executable, "-c", code, "bench", "run", str(path), "--processes=2"])
    environment = dict(os.environ)
    if slow:
        (tmp_path / "sitecustomize.py").write_text(SLOW_START)
        environment |= {"PYTHONPATH": str(tmp_path), "FIRST_WORKER": str(tmp_path / "first")}
    running = subprocess.Popen(
        ["sh", "-c", f"trap '' INT; exec {command}"],  # as nohup and & leave it
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with running:
        try:
            lines = [running.stdout.readline() for _ in range(2)]
            running.terminate()
            _, said = running.communicate(timeout=300)  # workers hold the pipes, so they are gone
        finally:
            end_session(running.pid)
    assert all("mlp random seed" in line for line in lines), said
    assert running.returncode == 130
    assert said.endswith("2 runs were recorded, the same command continues with the rest\n")
    assert [record["budget"]["amount"] for record in load(records).records] == [1.0, 1.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_an_interrupt_waits_until_a_worker_has_been_started(number):
    def interrupted(*_):
        raise KeyboardInterrupt

    idle = Thread(target=time.sleep, args=(1,), daemon=True)
    idle.start()  # it does not hold anything, so it is the one that hears
    before, finished = signal.signal(number, interrupted), []

    def start():
        with _interrupts_held():
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            finished.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert signal.getsignal(number) is interrupted
    finally:
        signal.signal(number, before)
    assert finished


def swept(seeds=(0, 1), sweep=(100, 101)):
    return Cell("mlp", "digits", "openai-es", Budget("steps", 9.0), seeds, sweep=sweep,
                sweep_amount=3.0)  # fmt: skip


def test_a_sweep_comes_before_the_seeds_and_never_sees_the_test_set():
    cell, known, stages = swept(), {}, []
    total = cell.size
    assert total == 2 * (2 * CONFIGURATIONS - 1) + 2
    while todo := cell.todo(known):
        progress = Progress([cell], list(known.values()))
        assert progress.left == total - len(known)
        assert len({(job.stage, job.budget.amount) for job in todo}) == 1
        job = todo[0]
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


def test_a_metric_that_should_be_low_is_tuned_down():
    cell, known = swept(sweep=(100,)), {}
    while todo := cell.todo(known):
        record = pretended(todo[0], dict(todo[0].options)["sigma"])
        known[todo[0].key] = record | {"metric": {"higher_is_better": False}}
    swept_values = {r["options"]["sigma"] for r in known.values() if "test" not in r}
    assert {r["options"]["sigma"] for r in known.values() if "test" in r} == {min(swept_values)}


def test_a_study_runs_every_variant_and_is_kept_apart(tmp_path, capsys):
    path, records = tmp_path / "study.toml", tmp_path / "study.jsonl"
    path.write_text(STUDY)
    assert run_suite(SuiteOptions(path, records)) == 0
    found = {r["variant"]: r for r in load(records).records}
    assert found.keys() == {"softmax", "greedy"}
    assert "solver=Greedy()" in found["greedy"]["settings"]
    assert "solver=RowSoftmax()" in found["softmax"]["settings"]
    assert {r["study"] for r in found.values()} == {"solver"}
    capsys.readouterr()
    assert run_table(TableOptions(records, "softmax")) == 0
    out = capsys.readouterr().out
    assert "softmax against greedy" in out
    assert "at equal steps: " not in out  # ablations are no wins over rivals


def test_a_closed_study_never_reads_the_test_set(tmp_path, monkeypatch):
    path, records = tmp_path / "study.toml", tmp_path / "study.jsonl"
    path.write_text(STUDY.replace("budget = 2", "budget = 2\nclosed = true"))
    monkeypatch.setattr("hardstep.data.DataSet.open_test", None)  # calling it would fail
    assert run_suite(SuiteOptions(path, records)) == 0
    loaded = load(records).records
    assert [(r["test_reads"], "test" in r) for r in loaded] == [(0, False)] * 2
    assert jobs_of(path, loaded) == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (SUITE.replace("seeds", "seedz"), ConfigError, "did you mean 'seeds'"),
        (SUITE.replace('"random"', '"randon"'), ConfigError, "did you mean 'random'"),
        (SUITE.replace('["mlp"]', '["mlq"]'), ConfigError, "mlq"),
        (SUITE.replace("population", "popultion"), ConfigError, "did you mean 'population'"),
        (SUITE.replace("budget = 2", "budget = 0"), ConfigError, "got 0"),
        (SUITE.replace('match = "steps"\n', ""), ConfigError, "lacks match"),
        (SUITE.replace("budget = 2", "tune = [1, 7]"), ConfigError, "tunes on seed 1"),
        (STUDY.replace("solver = ", "solvr = "), ConfigError, "did you mean 'solver'"),
        ("data = 'digits'", ConfigError, r"no \[\[run\]\]"),
        ("data = [", DataError, "not TOML"),
    ],
)
def test_a_suite_with_a_mistake_is_refused(tmp_path, text, error, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read(path)


def test_without_a_budget_a_task_takes_its_own_steps(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(SUITE.replace("budget = 2\n", ""))
    assert {cell.budget.amount for cell in read(path)} == {120.0}


def test_a_missing_suite_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere.toml cannot be read"):
        read(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(("seconds", "said"), [(7, "7 s"), (600, "10 min"), (36000, "10.0 h")])
def test_durations_are_said_in_their_own_unit(seconds, said):
    assert format_duration(seconds) == said


def test_keys_survive_a_file():
    job = Job("mlp", "digits", "random", 3, Budget("time", 7), (("sigma", 0.1 + 0.2),))
    assert key_of(json.loads(json.dumps(pretended(job)))) == job.key
