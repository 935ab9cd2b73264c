"""Ranks of torchrun: the bits of one process, one writer, and a sentence instead of a hang."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hardstep.cli import train
from hardstep.cli.options import TrainOptions
from hardstep.distributed import Peers
from hardstep.errors import ConfigError, WorkerError
from hardstep.training import checkpoints

from .problems import TRAIN, hash_saved

ROOT = Path(__file__).parents[2]


def environment(**more):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def torchrun(ranks, *words):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return subprocess.run(
        [*command, *words],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def start_ranks(words, environments):
    """Ranks without torchrun, so that each can be given, and lose, something of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    num = str(len(environments))
    common = {"WORLD_SIZE": num, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, text=True,
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **common, **own),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank, own in enumerate(environments)
    ]  # fmt: skip


def test_every_rank_comes_to_the_bits_of_one_process():
    names = ("spiking", "policy")
    done = torchrun(3, "-m", "tests.distributed.problems", *names)
    assert done.returncode == 0, done.stderr
    # Ranks share a pipe, and a line of one may end behind that of another.
    found = [json.loads(text) for text in re.findall(r"\{[^{}]*\}", done.stdout)]
    assert sorted(one["rank"] for one in found) == [0, 1, 2]
    for name in names:
        assert {one[name] for one in found} == {TRAIN[name](None)}


def test_the_command_runs_on_ranks_and_the_first_one_writes(tmp_path, capsys):
    words = ["train", "snn", "--steps", "4", "--seed", "3", "--json", "--out"]
    done = torchrun(2, "-m", "hardstep", *words, str(tmp_path / "ranks"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # once
    assert result["distributed"]["workers"] == 2
    train.run_train(TrainOptions("snn", steps=4, seed=3, out=tmp_path / "alone"))
    capsys.readouterr()
    saved = [checkpoints.load(tmp_path / name / "checkpoint.pt") for name in ("ranks", "alone")]
    assert hash_saved(saved[0]) == hash_saved(saved[1])
    assert (tmp_path / "ranks" / "picture.png").exists()


def test_a_lost_rank_ends_the_others_with_a_sentence_and_the_run_can_be_resumed(tmp_path):
    words = ["-m", "hardstep", "train", "snn", "--steps", "4000", "--out", str(tmp_path / "run")]
    first, second = start_ranks(words, [{}, {}])
    try:
        log = tmp_path / "run" / "log.jsonl"
        while not (log.exists() and log.read_text()) and first.poll() is None:
            time.sleep(0.1)
        second.send_signal(signal.SIGKILL)
        _, said = first.communicate(timeout=60)
    finally:
        first.kill()
        second.kill()
        second.communicate()
    assert first.returncode == 2
    last = said.strip().splitlines()[-1]
    assert last.startswith("hardstep: rank 0 of 2 has lost another one")
    assert f"in {tmp_path / 'run' / 'checkpoint.pt'}" in last
    assert checkpoints.load(tmp_path / "run" / "checkpoint.pt")["optimizer"]["step"] > 0


DRIFTED = """
import os, torch, hardstep
x = torch.linspace(-1, 1, 8)
if os.environ["RANK"] == "1":
    x[[0, 1]] = x[[1, 0]]
tensors = {"x": x}
opt = hardstep.PolyStep(tensors, evaluator=hardstep.distributed.Peers(timeout=30))
opt.step(lambda: tensors["x"].abs().sum())
"""


def test_ranks_that_have_drifted_apart_stop():
    """Even if their parameters are the same numbers at other places."""
    ranks = start_ranks(["-c", DRIFTED], [{}, {}])
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert all(rank.returncode for rank in ranks)
    assert all("rank 1 asks about other parameters" in one for one in said)


def test_ranks_that_are_unlike_are_refused_by_the_first(tmp_path):
    out = tmp_path / "never"
    words = ["-m", "hardstep", "train", "snn", "--steps", "2", "--out", str(out)]
    ranks = start_ranks(words, [{}, {"OMP_NUM_THREADS": "2"}])
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert not out.exists()
    sentence = "hardstep: rank 0 has threads 1 and rank 1 has 2; start all ranks with the same"
    assert said[0].strip().splitlines()[-1] == sentence
    assert "hardstep:" not in said[1]


def test_a_process_that_is_no_rank_and_options_that_contradict(monkeypatch):
    with pytest.raises(WorkerError, match="RANK is not set, so this is no rank of torchrun"):
        Peers()
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigError, match="torchrun starts the workers itself"):
        train.run_train(TrainOptions("snn", workers=2))


def test_a_world_that_does_not_gather_is_given_up(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WorkerError, match=r"rank 1 of 2 found no other at 127\.0\.0\.1") as seen:
        Peers(timeout=1)
    assert "\n" not in str(seen.value)
