"""`bench run` and `tune` on Ray: the records of local processes, runs that are lost, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from hardstep.bench import load  # noqa: E402
from tests.tasks.test_dry_run import OWN as OWN_TASK  # noqa: E402

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
SUITE = """
data = "digits"
[[run]]
tasks = ["mlp"]
methods = ["random"]
seeds = [0, 1]
match = "steps"
budget = {steps}
[options.mlp.random]
population = 4
"""
TIMES = {"seconds", "cpu_seconds", "peak_memory_bytes", "date", "command"}


def start(folder, *words):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", "hardstep", *map(str, words)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def without_times(records):
    """What must not depend on who ran it."""
    found = {}
    for record in records:
        kept = {name: value for name, value in record.items() if name not in TIMES}
        kept["curve"] = {n: v for n, v in kept["curve"].items() if n not in TIMES}
        found[record["seed"], json.dumps(record["options"])] = kept
    return found


def descendants(process):
    return psutil.Process(process.pid).children(recursive=True)


def list_runs(process):
    """Processes that carry out a run."""
    found = []
    for child in descendants(process):
        try:
            if "ray::_run" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def wait_for(find, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_suite_has_the_records_of_local_processes_though_a_run_is_killed(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE.format(steps=600))
    words = ["bench", "run", "suite.toml", "--processes", 2, "--records"]
    assert finish(start(tmp_path, *words, "here.jsonl"))[0] == 0
    running = start(tmp_path, *words, "ray.jsonl", "--ray")
    wait_for(lambda: list_runs(running), running)[0].kill()
    code, out, said = finish(running)
    assert code == 0, said
    assert out.count("mlp random seed") == 2
    here, there = (load(tmp_path / name).records for name in ("here.jsonl", "ray.jsonl"))
    assert without_times(there) == without_times(here)
    assert all("--ray" in record["command"] for record in there)


def test_a_sweep_finds_what_it_finds_without_ray(tmp_path):
    words = ["tune", "mlp", "--method", "random", "--match", "steps", "--budget", 2, "--json"]
    found = [json.loads(finish(start(tmp_path, *words, *more))[1])
             for more in ([], ["--ray", "--processes", 2])]  # fmt: skip
    assert found[0] == found[1]


def test_ctrl_c_saves_runs_and_leaves_nothing_running(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE.format(steps=100_000_000))
    running = start(tmp_path, "bench", "run", "suite.toml", "--processes", 2, "--ray")
    wait_for(lambda: len(list_runs(running)) == 2, running)
    time.sleep(2)  # runs are under way
    left = descendants(running)
    running.send_signal(signal.SIGINT)
    code, _, said = finish(running)
    assert code == 130, said
    assert said.splitlines()[-1].startswith("interrupted; 0 runs were recorded")
    _, alive = psutil.wait_procs(left, timeout=15)
    assert not alive
    assert len(list((tmp_path / "suite.partial").glob("*.pt"))) == 2


MOODY = """
def moody(output, target):
    import sys
    from hardstep.errors import DataError
    if "ray" in sys.modules:  # not while the driver tries the task
        raise DataError("the moon is full")
    return nn.functional.cross_entropy(output, target)
"""


def test_an_error_of_a_run_is_its_sentence(tmp_path):
    place = OWN_TASK.index("own = Task")
    own = OWN_TASK[:place] + MOODY + OWN_TASK[place:].replace("steps=2", "steps=2, loss_fn=moody")
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "suite.toml").write_text(SUITE.format(steps=2).replace('"mlp"]', '"own.py"]'))
    words = ["bench", "run", "suite.toml", "--ray", "--processes", 1]
    code, _, said = finish(start(tmp_path, *words))
    assert (code, said.splitlines()[-1]) == (2, "hardstep: the moon is full"), said
