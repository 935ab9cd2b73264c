import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hardstep import tasks
from hardstep.cli import main, results
from hardstep.cli import train as command
from hardstep.training import INTERRUPTED, Callback, checkpoints
from tests.tasks.images import write_images

OWN = str(Path(__file__).parents[2] / "examples" / "own_task.py")
HARDSTEP = [sys.executable, "-c", "from hardstep.cli.main import main; main()"]


def hardstep(*arguments, cwd=None):
    return subprocess.run(
        [*HARDSTEP, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def assert_same_weights(*folders):
    first, second = (checkpoints.load(folder / "checkpoint.pt")["model"] for folder in folders)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    return folder, hardstep("train", "mlp", "--steps", 3, "--seed", 4, "--out", folder, "--json")


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A few random images in the place of MNIST, for commands and for this process."""
    write_images(tmp_path / "data")
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))


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


def test_evaluate_gives_the_recorded_accuracy_again(finished):
    folder, done = finished
    again = hardstep("evaluate", folder / "checkpoint.pt", "--json")
    assert again.returncode == 0, again.stderr
    recorded, result = json.loads(done.stdout), json.loads(again.stdout)
    assert result["test_accuracy"] == recorded["test_accuracy"]
    assert result["valid_accuracy"] == recorded["valid_accuracy"]
    text = hardstep("evaluate", folder / "checkpoint.pt").stdout
    assert f"{100 * recorded['test_accuracy']:.1f} %" in text


def test_an_occupied_folder_is_refused_and_a_finished_run_reports_again(finished):
    folder, done = finished
    before = (folder / "result.json").read_bytes()
    refused = hardstep("train", "mlp", "--seed", 4, "--out", folder)
    assert refused.returncode == 2
    assert "add --resume" in refused.stderr
    again = hardstep("train", "mlp", "--seed", 4, "--out", folder, "--resume", "--json")
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert (folder / "result.json").read_bytes() == before


def test_resuming_another_run_is_refused_with_the_line_that_works(finished):
    folder, _ = finished
    refused = hardstep("train", "mlp", "--seed", 5, "--out", folder, "--resume")
    assert refused.returncode == 2
    assert "seed 4, not 5" in refused.stderr
    assert f"--seed 4 --out {folder} --resume" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "nonsense"], "no task is called 'nonsense'; there is argmax, binary, int8"),
        (["train", "binry"], "no task is called 'binry'; did you mean 'binary'?"),
        (["train", "mlp", "--data", "nonsense"], "no data set is called 'nonsense'; there is dig"),
        (["train", "none.py:task"], "there is no file none.py in"),
        (["train", OWN, "--data", "mnist"], "brings its own data ('own'), so data 'mnist' cannot"),
        (["train", f"{OWN}:fern"], "own_task.py is called 'fern'; did you mean 'ferns'?"),
        (["train", "mlp", "--steps", "0"], "--steps"),
        (["train", "mlp", "--resume"], "no run to resume"),
        (["train"], "Missing argument"),
        (["evaluate", "none.pt"], "no checkpoint at none.pt"),
        (["nonsense"], "No such command"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(tmp_path, arguments, sentence):
    done = hardstep(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("images")
def test_mnist_is_trained_on_drawn_and_scored_again(tmp_path):
    out = tmp_path / "run"
    done = hardstep("train", "snn", "--data", "mnist", "--steps", 2, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["task"], result["data"], result["steps"]) == ("snn", "mnist", 2)
    assert (result["evaluations"], result["test_examples"]) == (2 * 4_887, 20)
    assert (out / "picture.png").stat().st_size > 10_000
    again = hardstep("evaluate", out / "checkpoint.pt", "--json")
    assert json.loads(again.stdout)["test_accuracy"] == result["test_accuracy"]


@pytest.mark.parametrize("folder", ["nothing", None])
def test_missing_data_is_one_sentence_with_the_way_out(tmp_path, monkeypatch, capsys, folder):
    def unreachable(url, timeout):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    if folder is None:
        monkeypatch.delenv("HARDSTEP_DATA", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    else:
        monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / folder))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["hardstep", "train", "snn", "--data", "mnist"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    (sentence,) = said.err.splitlines()
    assert sentence.startswith("hardstep: mnist: looked for train-images-idx3-ubyte.gz")
    assert ("HARDSTEP_DATA is not set" in sentence) == (folder is None)
    assert "fetch them from https://ossci-datasets.s3.amazonaws.com/mnist (" in sentence
    assert sentence.endswith("put the files in a folder mnist/ and set HARDSTEP_DATA to its parent")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_ctrl_c_keeps_the_run_and_the_printed_line_resumes_it(tmp_path, sent):
    out = tmp_path / "run"
    arguments = ["train", "mlp", "--steps", "12", "--out", str(out)]
    running = subprocess.Popen(
        [*HARDSTEP, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (out / "log.jsonl").exists():
        time.sleep(0.02)
    while time.monotonic() < deadline and (out / "log.jsonl").stat().st_size == 0:
        time.sleep(0.02)
    running.send_signal(sent)
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stdout == ""
    line = stderr.strip().splitlines()[-1]
    assert line.startswith("go on with: hardstep train mlp ")
    taken = checkpoints.load(out / "checkpoint.pt")["optimizer"]["step"]
    assert 1 <= taken < 12
    done = hardstep(*line.removeprefix("go on with: hardstep ").split(), "--json")
    assert done.returncode == 0, done.stderr
    whole = hardstep("train", "mlp", "--steps", 12, "--out", tmp_path / "whole", "--json")
    resumed, straight = json.loads(done.stdout), json.loads(whole.stdout)
    assert resumed["test_accuracy"] == straight["test_accuracy"]
    assert_same_weights(out, tmp_path / "whole")


class StopsAfterOneStep(Callback):
    def on_step(self, run, report):
        run.stop(INTERRUPTED)


@pytest.mark.usefixtures("images")
def test_an_interrupted_mnist_run_resumes_to_the_same_weights(tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command.run_train(command.TrainOptions("snn", "mnist", steps=3, out=whole)) == 0
    options = command.TrainOptions("snn", "mnist", steps=3, out=parts)
    with monkeypatch.context() as patch:
        patch.setattr(command, "ProgressBar", StopsAfterOneStep)
        assert command.run_train(options) == 130
    assert checkpoints.load(parts / "checkpoint.pt")["optimizer"]["step"] == 1
    assert command.run_train(replace(options, resume=True)) == 0
    assert_same_weights(whole, parts)


def test_default_folders_are_numbered_and_resume_takes_the_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, options = tasks.find("mlp"), command.TrainOptions("mlp")
    assert command._folder(task, options) == Path("runs/mlp-digits-seed0")
    for name in ("mlp-digits-seed0", "mlp-digits-seed0-2"):
        checkpoints.save(Path("runs") / name / "checkpoint.pt", {})
    assert command._folder(task, options) == Path("runs/mlp-digits-seed0-3")
    resumed = command.TrainOptions("mlp", resume=True)
    assert command._folder(task, resumed) == Path("runs/mlp-digits-seed0-2")


def test_another_name_of_a_task_trains_resumes_and_records_the_task_itself(tmp_path):
    done = hardstep("train", "mnist", "--steps", 1, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["task"] == "mlp"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mlp-digits-seed0"]
    again = hardstep("train", "mnist", "--resume", "--json", cwd=tmp_path)
    assert again.stdout == done.stdout


def test_a_checkpoint_of_another_model_is_one_sentence(finished):
    folder, _ = finished
    done = hardstep("diagnose", "snn", "--checkpoint", folder / "checkpoint.pt")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "does not fit the model of snn" in done.stderr


def test_help_and_import_do_not_load_torch():
    code = (
        "import sys, hardstep.cli.main as m\n"
        "try: m.app(['--help'])\n"
        "except SystemExit: pass\n"
        "import hardstep\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "evaluate" in done.stdout


def test_the_help_of_train_names_every_task_and_data_set():
    text = " ".join(hardstep("train", "--help").stdout.split())
    names = {*tasks.BY_DATA, *tasks.BY_DATA["digits"], *tasks.BY_DATA["mnist"]}
    assert all(re.search(rf"\b{name}\b", text) for name in names)


def test_version_is_printed():
    import hardstep as package

    assert hardstep("--version").stdout.strip() == package.__version__


@pytest.mark.parametrize("on_path", [False, True])
def test_printed_commands_can_be_typed_as_they_are(tmp_path, monkeypatch, on_path):
    script = tmp_path / "venv" / "bin" / "hardstep"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    monkeypatch.setenv("PATH", str(script.parent) if on_path else str(tmp_path))
    assert results.program() == ("hardstep" if on_path else "venv/bin/hardstep")
