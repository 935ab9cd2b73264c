import json
import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from threading import RLock, Thread

import pytest
from llvmlite.binding import get_host_cpu_name

from hardstep.bench import load, queue
from hardstep.bench.axes import Budget
from hardstep.bench.progress import Progress
from hardstep.bench.queue import carry_out
from hardstep.bench.runs import Job, key_of, run_job
from hardstep.bench.suite import read
from hardstep.cli.bench import run_suite, run_table
from hardstep.cli.options import SuiteOptions, TableOptions
from hardstep.errors import ConfigError

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


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


def jobs_of(path, records=()):
    """What can be run now."""
    progress, found = Progress(read(path), records), []
    while job := progress.next_job({job.key for job in found}):
        found.append(job)
    return found


def pretended(job, valid=0.5):
    """What a run of that job would have recorded."""
    curve = {"value": [valid], "steps": [2], "evaluations": [8], "seconds": [1.0],
             "cpu_seconds": [1.0]}  # fmt: skip
    budget = {"axis": job.budget.axis, "amount": job.budget.amount}
    record = {"task": job.task, "data": job.data, "method": job.method, "seed": job.seed,
              "budget": budget, "steps": 2, "valid": valid, "options": dict(job.options),
              "test_reads": 0, "curve": curve, "seconds": 1.0, "evaluations": 8}  # fmt: skip
    return record if job.stage else record | {"test": valid, "test_reads": 1}


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


def test_a_part_of_a_suite_is_run_alone(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "run", lambda self, folder: pretended(self))
    records = tmp_path / "runs.jsonl"
    part = SuiteOptions(suite, records, tasks="mlp", methods="random", match="steps")
    assert run_suite(part) == 0
    found = [(r["method"], r["seed"]) for r in load(records).records]
    assert found == [("random", 0), ("random", 1)]


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
    tuned = [swept(seed) for seed in (0, 1)]
    jobs = [Job("mlp", "digits", "openai-es", seed, Budget("evals", 500.0)) for seed in (0, 1)]
    job = Job("snn", "digits", "random", 5, Budget("steps", 2.0))
    first = pretended(job) | {"seconds": 8.0}  # 4 s a step, of another method and task
    progress = Progress([*tuned, *jobs], [first])
    budget = 17 * 2 * 3.0 + 2 * 9.0  # sweep, then seeds
    by_run = 2 * 8.0  # of evaluations nothing is known
    assert progress.seconds_left() == pytest.approx(4 * budget + by_run)
    known = progress.next_job(set())
    progress.add(pretended(known) | {"seconds": 6.0})  # 2 s a step of this very job
    progress.processes = 2
    assert progress.seconds_left() == pytest.approx((2 * (budget - 3.0) + 2 * 7.0) / 2)


def swept(seed=0, sweep=(100, 101)):
    return Job("mlp", "digits", "openai-es", seed, Budget("steps", 9.0), sweep=sweep,
               sweep_amount=3.0)  # fmt: skip


class Endless(Job):
    """A run that says it has begun and never ends, but saves itself on Ctrl-C."""

    def run(self, folder):
        begun = folder / f"begun {self.seed}"
        try:
            begun.touch()
            while True:
                time.sleep(0.01)
        finally:
            begun.rename(folder / f"saved {self.seed}")


@pytest.mark.slow
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
@pytest.mark.parametrize("place", ["submit", "add_done_callback", "result"])
def test_an_interrupt_never_leaves_a_lock_of_the_pool_locked(monkeypatch, place, number):
    lock, free, inherited = RLock(), [], []

    def interrupt(here):
        lock.acquire()  # not by `with`: Python may be interrupted just before that is entered
        if here == place:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        lock.release()

    class FakeFuture(Future):
        def add_done_callback(self, callback):
            interrupt("add_done_callback")
            super().add_done_callback(callback)
            self.set_result({})

        def result(self, timeout=None):
            interrupt("result")
            return super().result(timeout)

    class FakePool(nullcontext):
        def submit(self, *_):
            inherited.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            interrupt("submit")
            return FakeFuture()

        def shutdown(self, **_):  # of a real one, its own thread would wait for the lock
            other = Thread(target=lambda: free.append(lock.acquire(blocking=False)))
            other.start()
            other.join()

    monkeypatch.setattr(queue, "ProcessPoolExecutor", lambda *_: FakePool(FakePool()))
    Thread(target=time.sleep, args=(1,), daemon=True).start()  # it hears what is blocked here
    job = Job("mlp", "digits", "random", 0, Budget("steps", 2.0))
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(carry_out(Progress([job], []), None, 2))
    finally:
        assert signal.signal(number, before) is signal.default_int_handler
    assert free == [True]
    assert all(blocked >= queue.INTERRUPTS for blocked in inherited)  # until a worker asks for them
    assert not queue.INTERRUPTS & signal.pthread_sigmask(signal.SIG_BLOCK, ())


TWO_RUNS = SUITE[SUITE.index("[[run]]") : SUITE.index("[options")].replace('"polystep", ', "")


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
        os.mkdir(os.environ["FOLDER"] + "/first")
    except FileExistsError:
        while not os.path.exists(os.environ["FOLDER"] + "/killed"):
            time.sleep(0.01)
"""


@pytest.mark.slow
def test_kill_ends_a_suite_in_the_background_and_its_workers_one_of_which_is_starting(tmp_path):
    path, records = tmp_path / "suite.toml", tmp_path / "suite.jsonl"
    short, endless = (TWO_RUNS.replace("= 2", f"= {steps}") for steps in (1, 100_000_000))
    path.write_text(short + endless)
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    code = "from hardstep.cli.main import main; main()"
    command = shlex.join([sys.executable, "-c", code, "bench", "run", str(path), "--processes=2"])
    places = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    running = subprocess.Popen(
        ["sh", "-c", f"trap '' INT; exec {command}"],  # as nohup and & leave it
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places), "FOLDER": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with running:
        try:
            lines = [running.stdout.readline() for _ in range(2)]
            running.terminate()
            (tmp_path / "killed").touch()
            _, said = running.communicate(timeout=300)  # workers hold the pipes, so they are gone
        finally:
            end_session(running.pid)
    assert all("mlp random seed" in line for line in lines), said
    assert running.returncode == 130
    assert said.endswith("2 runs were recorded, the same command continues with the rest\n")
    found = load(records).records
    assert [record["budget"]["amount"] for record in found] == [1.0, 1.0]
    for job, record in zip(read(path), found, strict=False):  # as in one process
        assert run_job(job)["curve"]["value"] == record["curve"]["value"]


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
    assert "at equal steps: " not in out  # ablations are no wins over baselines


def test_a_closed_study_never_reads_the_test_set(tmp_path, monkeypatch):
    path, records = tmp_path / "study.toml", tmp_path / "study.jsonl"
    path.write_text(STUDY.replace("budget = 2", "budget = 2\nclosed = true"))
    monkeypatch.setattr("hardstep.data.DataSet.open_test", None)  # calling it would fail
    assert run_suite(SuiteOptions(path, records)) == 0
    loaded = load(records).records
    assert [(r["test_reads"], "test" in r) for r in loaded] == [(0, False)] * 2
    assert jobs_of(path, loaded) == []


def test_keys_survive_a_file():
    job = Job("mlp", "digits", "random", 3, Budget("time", 7), (("sigma", 0.1 + 0.2),))
    assert key_of(json.loads(json.dumps(pretended(job)))) == job.key
