"""`train`: what a run writes and prints, and how an interrupted one is resumed."""

import json
import shutil
import signal
import sys
import time
import warnings
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch

from hardstep import tasks
from hardstep.cli import train as command
from hardstep.cli.train import describe_sharing
from hardstep.distributed import Counts
from hardstep.training import Callback, checkpoints
from tests.cli.program import hardstep, start
from tests.tasks.images import write_images


def assert_same_weights(*folders):
    first, second = (checkpoints.load(folder / "checkpoint.pt")["model"] for folder in folders)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_prints_json_alone_on_stdout_and_writes_every_file(finished):
    folder, done = finished
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["task"], result["seed"], result["steps"]) == ("mlp", 4, 3)
    assert result["evaluations"] == 3 * 1908
    assert 0 <= result["test_accuracy"] <= 1
    assert result["test_examples"] == 360
    names = {"checkpoint.pt", "log.jsonl", "picture.png", "result.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "\x1b" not in done.stderr  # no bar away from a terminal
    assert "step 1/3" in done.stderr


def test_an_occupied_folder_is_refused_and_a_finished_run_reports_again(finished):
    folder, done = finished
    before = (folder / "result.json").read_bytes()
    refused = hardstep("train", "mlp", "--seed", 4, "--out", folder)
    assert refused.returncode == 2
    assert "add --resume" in refused.stderr
    again = hardstep("train", "mlp", "--seed", 4, "--out", folder, "--resume", "--json")
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert (folder / "result.json").read_bytes() == before


def test_a_run_with_the_papers_preset_is_resumed_with_it(tmp_path):
    typed = ["train", "mlp", "--steps", 1, "--out", tmp_path / "run"]
    done = hardstep(*typed, "--preset", "paper", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["preset"], "LayerWise(rank=8, " in result["settings"]) == ("paper", True)
    refused = hardstep(*typed, "--resume")
    assert refused.returncode == 2
    assert "preset 'paper', not 'task'" in refused.stderr
    line = refused.stderr.strip().partition("resume with: hardstep ")[2]
    assert " --preset paper " in line
    assert hardstep(*line.split()).returncode == 0
    unknown = hardstep("train", "ternary", "--preset", "paper", "--out", tmp_path / "other")
    assert (unknown.returncode, "no settings for 'ternary'" in unknown.stderr) == (2, True)
    assert not (tmp_path / "other").exists()


def test_resuming_another_run_is_refused_with_the_line_that_works(finished):
    folder, _ = finished
    refused = hardstep("train", "mlp", "--seed", 5, "--out", folder, "--resume")
    assert refused.returncode == 2
    assert "seed 4, not 5" in refused.stderr
    assert f"--seed 4 --out {folder} --resume" in refused.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_the_run_and_the_printed_line_resumes_it(tmp_path):
    out, whole = tmp_path / "run", tmp_path / "whole"
    running, log = start("train", "mlp", "--steps", 40, "--out", out), out / "log.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (log.exists() and log.stat().st_size):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stdout == ""
    line = stderr.strip().splitlines()[-1]
    assert line.startswith("continue with: hardstep train mlp ")
    taken = checkpoints.load(out / "checkpoint.pt")["optimizer"]["step"]
    assert 1 <= taken < 40
    done = hardstep(*line.removeprefix("continue with: hardstep ").split(), "--json")
    assert done.returncode == 0, done.stderr
    straight = hardstep("train", "mlp", "--steps", 40, "--out", whole, "--json")
    accuracy, expected = (json.loads(d.stdout)["test_accuracy"] for d in (done, straight))
    assert accuracy == expected
    assert_same_weights(out, whole)


class KillsAfterOneStep(Callback):
    def on_step(self, run, report):
        signal.raise_signal(signal.SIGTERM)


def test_mnist_is_trained_on_drawn_scored_again_and_resumed_after_a_kill(tmp_path, monkeypatch):
    write_images(tmp_path / "data")  # a few random images in the place of MNIST
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    typed = ["train", "snn", "--data", "mnist", "--steps", 2, "--json", "--out"]
    done = hardstep(*typed, whole)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["task"], result["data"], result["steps"]) == ("snn", "mnist", 2)
    assert (result["evaluations"], result["test_examples"]) == (2 * 4_887, 20)
    assert (whole / "picture.png").stat().st_size > 10_000
    again = hardstep("evaluate", whole / "checkpoint.pt", "--json")
    assert json.loads(again.stdout)["test_accuracy"] == result["test_accuracy"]
    with monkeypatch.context() as patch:
        patch.setattr(command, "ProgressBar", KillsAfterOneStep)
        assert hardstep(*typed, parts).returncode == 130
    assert checkpoints.load(parts / "checkpoint.pt")["optimizer"]["step"] == 1
    assert hardstep(*typed, parts, "--resume").returncode == 0
    assert_same_weights(whole, parts)


def test_default_folders_are_numbered_and_resume_takes_the_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, options = tasks.find("mlp"), command.TrainOptions("mlp")
    assert command.choose_folder(task, options) == Path("runs/mlp-digits-seed0")
    for name in ("mlp-digits-seed0", "mlp-digits-seed0-2"):
        checkpoints.save(Path("runs") / name / "checkpoint.pt", {})
    assert command.choose_folder(task, options) == Path("runs/mlp-digits-seed0-3")
    resumed = command.TrainOptions("mlp", resume=True)
    assert command.choose_folder(task, resumed) == Path("runs/mlp-digits-seed0-2")


@pytest.fixture
def stopped(finished, tmp_path):
    """A copy of a finished run, and what resumes it."""
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    return folder, ("train", "mlp", "--seed", 4, "--out", folder, "--resume", "--json")


def test_a_run_stopped_before_its_picture_draws_it_when_resumed(finished, stopped):
    folder, resume = stopped
    before = (folder / "picture.png").read_bytes()
    (folder / "picture.png").unlink()
    again = hardstep(*resume)
    assert again.returncode == 0, again.stderr
    assert (
        json.loads(again.stdout)["test_accuracy"] == json.loads(finished[1].stdout)["test_accuracy"]
    )
    assert (folder / "picture.png").read_bytes() == before


def test_a_picture_is_there_whole_or_not_at_all(stopped, monkeypatch):
    folder, resume = stopped
    (folder / "picture.png").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", interrupt)
        assert hardstep(*resume).returncode == 130
    assert not (folder / "picture.png").exists()
    assert hardstep(*resume).returncode == 0
    assert (folder / "picture.png").exists()


def interrupt(figure, path, **options):
    path.write_bytes(b"half")
    raise KeyboardInterrupt


def change(content):
    return content.replace(b"5", b"6", 1)


DAMAGE = {
    "result.json: it is not a JSON object; delete it, and": ("result.json", lambda text: text[:-9]),
    "result.json: it is damaged: its checksum does not match; delete": ("result.json", change),
    "result.json: a result is an object, this is []; delete it": ("result.json", lambda _: b"[]"),
    "result.json: task is missing; delete it": ("result.json", lambda _: b"{}"),
    "result.json: seconds is 'x'; delete": ("result.json", lambda text: unseal(text, seconds="x")),
    "result.json: evaluations is -1; delete": (
        "result.json",
        lambda text: unseal(text, evaluations=-1),
    ),
    "result.json: seconds is 0; delete": ("result.json", lambda text: unseal(text, seconds=0)),
    "log.jsonl, line 1: it is damaged: its checksum does not match; restore": ("log.jsonl", change),
    "log.jsonl, line 2: not a JSON object; restore the log from a copy, or delete it": (
        "log.jsonl",
        lambda text: text.replace(b"\n", b"\n\xff\n", 1),
    ),
    "checkpoint.pt is damaged: its checksum does not match; restore it": (
        "checkpoint.pt",
        lambda content: content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
    ),
}


def unseal(text, **changes):
    """A result from before there were checksums."""
    found = json.loads(text) | changes
    del found["sealed"], found["checksum"]
    return json.dumps(found).encode()


@pytest.mark.parametrize("sentence", DAMAGE)
def test_damaged_files_of_a_run_are_one_sentence(stopped, sentence):
    folder, resume = stopped
    name, damage = DAMAGE[sentence]
    (folder / "picture.png").unlink()
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    refused = hardstep(*resume)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert len(refused.stderr.splitlines()) == 1
    assert sentence in refused.stderr
    if "checksum" in sentence and name != "checkpoint.pt":
        (folder / name).unlink()  # the way out that it names
        assert hardstep(*resume).returncode == 0


def test_another_name_of_a_task_trains_resumes_and_records_the_task_itself(tmp_path):
    done = hardstep("train", "mnist", "--steps", 1, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["task"] == "mlp"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mlp-digits-seed0"]
    again = hardstep("train", "mnist", "--resume", "--json", cwd=tmp_path)
    assert again.stdout == done.stdout


def test_a_checkpoint_of_another_model_is_one_sentence(finished):
    folder, _ = finished
    done = hardstep("diagnose", "snn", "--checkpoint", folder)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "does not fit the model of snn" in done.stderr


@pytest.mark.parametrize("on_path", [False, True])
def test_printed_commands_can_be_typed_as_they_are(tmp_path, monkeypatch, on_path):
    script = tmp_path / "venv" / "bin" / "hardstep"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    monkeypatch.setenv("PATH", str(script.parent) if on_path else str(tmp_path))
    assert command.find_program() == ("hardstep" if on_path else "venv/bin/hardstep")


DEAD_TASK = """
import torch
from torch import nn
from hardstep.data import from_tensors
from hardstep.tasks import Task

class Silent(nn.Linear):
    def forward(self, x):
        return (super().forward(x) > 1e9).float()

def data(seed):
    return from_tensors(torch.randn(60, 3), torch.arange(60) % 2, seed)

silent = Task("silent", "no unit fires", data=data, model=lambda: Silent(3, 2), steps=6)
"""


def test_a_dead_run_says_so_in_one_line_of_its_own(tmp_path):
    (tmp_path / "own.py").write_text(DEAD_TASK)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as Python starts
        done = hardstep("train", "own.py:silent", "--out", tmp_path / "run", cwd=tmp_path)
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "nothing can move" in line]
    assert len(lines) == 1
    assert lines[0].startswith("hardstep: dead: in 3 steps in a row, ")
    assert "Warning" not in done.stderr


def test_a_run_that_was_shared_says_by_whom_and_what_was_lost():
    counts = Counts(tiles=90, retries=3, lost=1, quorum=0.9, left_out=2, busy=3.0, available=4.0)
    said = describe_sharing({"distributed": counts.as_record(2)})["workers"]
    assert said.startswith("2, waiting for 25% of their time; tiles handed out again: 3; ")
    assert said.endswith("workers lost: 1; tiles left out: 2")
    assert describe_sharing({}) == {}


LOCKED = """
import threading
import torch
from torch import nn
from hardstep.data import from_tensors
from hardstep.tasks import Task

class Locked(nn.Linear):
    def __init__(self):
        super().__init__(1, 4)
        self.lock = threading.Lock()

def waves(seed):
    x = torch.linspace(-2, 2, 40)[:, None]
    return from_tensors(x, (x[:, 0] > 0).long(), seed)

own = Task("own", "a model with a lock", data=waves, model=Locked, steps=3, batch_size=8)
"""


def test_a_model_that_cannot_be_sent_to_workers_is_one_sentence(tmp_path):
    (tmp_path / "t.py").write_text(LOCKED)
    done = hardstep("train", "t.py:own", "--workers", 2, "--out", "runs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    *_, told = done.stderr.splitlines()
    assert told.startswith("hardstep: the model cannot be sent to workers (TypeError: ")
    assert not active_children()
