"""Run as a script: trains in forked children that are killed, and says how it ended.

Usage: killed_run.py FOLDER KILLS. Trains twice, once left alone and once killed so many times, and
prints one JSON line for each.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardstep
from hardstep.training import JsonlLog, Validation
from tests.training.small import SETTINGS, batches, examples

STEPS = 240


def train(folder: Path) -> None:
    """One session: resumes if there is something to resume."""
    net = hardstep.nn.build(
        lambda: nn.Sequential(
            nn.Linear(3, 4), hardstep.nn.Staircase(), nn.Dropout(0.2), nn.Linear(4, 2)
        ),
        0,
    )
    path = folder / "run.pt"
    hardstep.fit(
        net,
        DataLoader(TensorDataset(*examples()), batch_size=32, shuffle=True),
        Validation(batches(num=32), every=10),
        optimizer=hardstep.PolyStep(net, SETTINGS, seed=3),
        steps=STEPS,
        callbacks=[JsonlLog(folder / "log.jsonl")],
        checkpoint=hardstep.Checkpoint(path, every_seconds=0.02),
        resume=path.exists(),
    )


def wait_for_steps(child: int, log: Path, num: int) -> None:
    """Until the session has changed its log so many times, or has ended."""
    sizes: set[int] = set()
    running = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while len(sizes) <= num and os.waitid(os.P_PID, child, running) is None:
        sizes.add(log.stat().st_size if log.exists() else 0)
        time.sleep(0.001)


def end_of(folder: Path, kills: int) -> dict:
    """Fork, kill at a random moment, repeat, then let it finish."""
    folder.mkdir()
    moments = random.Random(0)
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            train(folder)
            os._exit(0)
        if killed < kills:
            wait_for_steps(child, folder / "log.jsonl", moments.randrange(12))
            time.sleep(moments.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status) == 0:
            break
        else:
            sys.exit(1)
    saved = torch.load(folder / "run.pt", weights_only=True)
    weights = b"".join(t.numpy().tobytes() for t in saved["model"].values())
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {
        "killed": killed,
        "weights": hashlib.sha256(weights).hexdigest(),
        "step": saved["optimizer"]["step"],
        "history": [row[:3] for row in saved["history"]],
        "logged": [row["step"] for row in lines if row["event"] == "step"],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, kills in (("calm", 0), ("harried", int(sys.argv[2]))):
        print(json.dumps(end_of(Path(sys.argv[1]) / name, kills)))
