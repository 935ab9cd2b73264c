"""Files that are written whole or not at all, and what a process that dies leaves behind."""

import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hardstep._files import explain_failed_write, provenance, write_atomically, write_text
from hardstep.errors import DataError
from tests.damage import full_disk

LEFTOVER = ".run.pt.0123456789abcdef"


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_write_removes_what_a_killed_one_has_left_and_nothing_else(tmp_path):
    kept = {".run.pt.0123", ".run.pt.0123456789abcdeg", ".other.pt.0123456789abcdef", "run.pt.bak",
            ".runXpt.0123456789abcdef", f"{LEFTOVER}0"}  # fmt: skip
    for name in (*kept, LEFTOVER):
        (tmp_path / name).write_text("half")
    (tmp_path / ".run.pt.aaaaaaaaaaaaaaaa").mkdir()
    write_text(tmp_path / "run.pt", "whole")
    assert names(tmp_path) == {*kept, ".run.pt.aaaaaaaaaaaaaaaa", "run.pt"}


def test_a_file_that_is_being_written_is_no_leftover(tmp_path):
    path = tmp_path / "run.pt"
    with write_atomically(path) as slow:
        slow.write_text("slow")
        write_text(path, "quick")
        assert slow.exists()
    assert path.read_text() == "slow"
    assert names(tmp_path) == {"run.pt"}


KILLED = """
import os, signal, sys
from pathlib import Path
from hardstep._files import write_atomically
with write_atomically(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_write_clears_what_a_kill_has_left(tmp_path):
    path = tmp_path / "run.pt"
    write_text(path, "old")
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    assert path.read_text() == "old"
    write_text(path, "new")
    assert names(tmp_path) == {"run.pt"}


def test_a_link_in_the_place_of_a_leftover_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / LEFTOVER).symlink_to(tmp_path / "mine")
    write_text(tmp_path / "run.pt", "whole")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_full_disk_is_one_sentence_and_the_old_file_stays(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "old")
    with (
        full_disk(),
        pytest.raises(DataError, match=rf"{re.escape(str(path))} cannot be written: .*; make room"),
    ):
        write_text(path, "new" * 1000)
    assert path.read_text() == "old"
    assert names(tmp_path) == {"page.html"}
    with pytest.raises(DataError, match="Is a directory; try"), explain_failed_write(path, "try"):
        os.open(tmp_path, os.O_WRONLY)


@pytest.mark.parametrize(
    ("called", "module", "command"),
    [
        ("/usr/bin/hardstep", None, "hardstep train snn"),
        ("/lib/hardstep/__main__.py", "hardstep.__main__", "hardstep train snn"),
        ("/home/tests/long_run.py", "tests.long_run", "python -m tests.long_run train snn"),
        ("/home/mine.py", None, "python mine.py train snn"),
        ("-c", None, "hardstep train snn"),
    ],
)
def test_a_record_names_the_command_that_made_it(called, module, command, monkeypatch):
    main = SimpleNamespace(__spec__=module and SimpleNamespace(name=module))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [called, "train", "snn"])
    assert provenance()["command"] == command


def test_a_record_names_no_folder_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    far, near = tmp_path.parent / "elsewhere" / "task.py", tmp_path / "runs" / "one.jsonl"
    words = ["train", str(far), f"--records={near}", "--out", "runs/two"]
    monkeypatch.setattr(sys, "argv", ["hardstep", *words])
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=None))
    wanted = "hardstep train task.py --records=runs/one.jsonl --out runs/two"
    assert provenance()["command"] == wanted
