"""A checkpoint runs no code unless the user names it, or is shown it and says yes."""

import io
import json
import os
import shlex
import sys

import pytest
import torch

from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.options import EvaluateOptions
from hardstep.errors import CheckpointError
from hardstep.training import checkpoints
from tests.cli.program import hardstep

OWN = """
import pathlib
from torch import nn
from hardstep.data import digits
from hardstep.tasks import Task

pathlib.Path("it-ran").touch()
small = Task("small", "a line", data=digits, model=lambda: nn.Linear(64, 10), steps=1)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a task, its checkpoint, and the command that was told to score it again."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    done = hardstep("train", "own.py:small", "--out", "run", cwd=folder)
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("score again"))
    return folder, shlex.split(told)[2:]


@pytest.fixture
def place(trained, monkeypatch):
    monkeypatch.chdir(trained[0])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    os.utime("own.py")  # a file that is the same does not run again
    if os.path.exists("it-ran"):
        os.remove("it-ran")
    return trained[0]


def refusal(place):
    file = place / "own.py"
    return (
        f"run/checkpoint.pt was trained on own.py:small, so scoring it runs the Python code in "
        f"{file}; if you trust that file, type: hardstep evaluate run/checkpoint.pt "
        "--task own.py:small"
    )


@pytest.mark.parametrize("asked", [["run"], ["run/checkpoint.pt", "--json"]])
def test_what_a_checkpoint_names_does_not_run_and_one_sentence_says_what_to_type(place, asked):
    done = hardstep("evaluate", *asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hardstep: {refusal(place)}\n"
    assert not os.path.exists("it-ran")
    typed = shlex.split(done.stderr.split("type: hardstep ")[1])
    again = hardstep(*typed)
    assert again.returncode == 0, again.stderr
    assert os.path.exists("it-ran")


def test_the_command_that_training_prints_scores_it_again(place, trained):
    program, *typed = trained[1]
    assert program == "hardstep"
    assert hardstep(*typed).returncode == 0


def test_a_file_that_moved_is_found_where_the_user_says(place):
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "other.py").write_text(OWN)
    done = hardstep("evaluate", "run", "--task", "elsewhere/other.py", "--json")
    result = json.loads(done.stdout)
    assert (result["task"], result["data"]) == ("elsewhere/other.py:small", "own")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def answer(monkeypatch):
    """What a user types, and what was shown."""

    def give(text):
        shown = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(sys, "stderr", shown)
        return shown

    return give


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_a_user_at_a_terminal_is_shown_the_file_and_may_agree(place, answer, typed):
    shown = answer(typed)
    assert run_evaluate(EvaluateOptions(place / "run")) == 0
    assert shown.getvalue() == (
        f"{place}/run/checkpoint.pt was trained on own.py:small. Scoring it runs the Python code "
        f"in\n  {place}/own.py\nRun it? [y/N] "
    )


@pytest.mark.parametrize("typed", ["", "\n", "n\n", "no\n", "maybe\n"])
def test_anything_but_yes_is_no(place, answer, typed):
    answer(typed)
    with pytest.raises(CheckpointError, match="if you trust that file, type: "):
        run_evaluate(EvaluateOptions(place / "run"))
    assert not os.path.exists("it-ran")


def test_nobody_is_asked_for_json_or_where_nobody_reads(place, answer, monkeypatch):
    shown = answer("y\n")
    with pytest.raises(CheckpointError, match="type: "):
        run_evaluate(EvaluateOptions(place / "run", json=True))
    monkeypatch.setattr(sys, "stdin", None)  # closed, as some services start programs
    with pytest.raises(CheckpointError, match="type: "):
        run_evaluate(EvaluateOptions(place / "run"))
    assert shown.getvalue() == ""
    assert not os.path.exists("it-ran")


@pytest.mark.parametrize(
    "name", ["own.py\x1b[2K:small", "own.py\n:small", "\u202eyp.nwo/own.py", f"{'x' * 2000}.py"]
)
def test_a_name_that_would_deceive_is_not_shown(place, answer, name):
    saved = torch.load("run/checkpoint.pt", weights_only=True)
    del saved["format"]
    checkpoints.save("deceptive.pt", saved | {"meta": saved["meta"] | {"task": name}})
    answer("y\n")
    with pytest.raises(CheckpointError, match="names a task that cannot be shown, '") as refused:
        run_evaluate(EvaluateOptions(place / "deceptive.pt"))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
