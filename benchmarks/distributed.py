"""What workers cost and gain: `python -m benchmarks.distributed`, about two minutes.

Steps of the spiking network at the paper's size (or another task) are taken in turn here, by one
worker and by two, each with one thread, and an objective of 10 ms an evaluation likewise. Then two
ranks of `torchrun` take them, together and the first one alone, some at a time. Medians
of the times, and bytes a step, go to benchmarks/results/worker-costs.json, which
`python -m benchmarks.pages.results` makes a table of. Wants an otherwise idle machine with two
cores, and MNIST in the folder that HARDSTEP_DATA names, or `--data digits`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from hardstep import PolyStep, tasks
from hardstep import nn as hard
from hardstep._files import provenance
from hardstep.data import Batches
from hardstep.distributed import Futures, Peers, end_with_parent

RECORD = Path(__file__).parent / "results" / "worker-costs.json"
WARM = 3  # steps before the clock counts: workers start, kernels compile
SLOW = 0.01  # seconds of a slow objective's evaluation
IN_TURN = 5  # steps of ranks together, and of the first one alone


class SlowObjective:
    """A simulator that takes its time; it occupies no core."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def __call__(self) -> float:
        """One evaluation."""
        time.sleep(SLOW)
        return float(self.tensors["x"].round().abs().sum())


def make_task(task: Any, evaluator: Any) -> Callable[[int], Any]:
    """A function that takes a step of a task."""
    dataset, model = task.data(0), hard.build(task.model, 0)
    opt = PolyStep(model, task.settings(task.steps), evaluator=evaluator)
    batches = Batches(dataset.train, task.batch_size, 0)
    return lambda step: opt.step(*batches.batch(0, step % len(batches)), task.loss_fn)


def make_slow(evaluator: Any) -> Callable[[int], Any]:
    """A function that takes a step of a slow objective."""
    tensors = {"x": torch.linspace(-5, 5, 32)}
    opt, closure = PolyStep(tensors, evaluator=evaluator), SlowObjective(tensors)
    return lambda step: opt.step(closure)


def compare(make: Callable[[Any], Callable[[int], Any]], steps: int) -> dict[str, Any]:
    """Medians of steps taken in turn: alone, by one worker, by two."""
    start = partial(
        ProcessPoolExecutor, mp_context=get_context("spawn"), initializer=end_with_parent
    )
    with Futures(partial(start, 1), 1) as one, Futures(partial(start, 2), 2) as two:
        ways = {"alone": make(None), "one": make(one), "two": make(two)}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        sent: dict[str, int] = {}
        for step in range(WARM + steps):
            if step == WARM:
                sent = {"one": _bytes(one), "two": _bytes(two)}
            for name, take in ways.items():
                began = time.perf_counter()
                take(step)
                if step >= WARM:
                    taken[name].append(time.perf_counter() - began)
        traffic = {
            "one": (_bytes(one) - sent["one"]) / steps,
            "two": (_bytes(two) - sent["two"]) / steps,
        }
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {
        "seconds": medians,
        "one worker against none": medians["one"] / medians["alone"] - 1,
        "two workers against one": medians["one"] / medians["two"],
        "bytes a step": traffic,
        "steps": steps,
    }


def compare_ranks(options: argparse.Namespace) -> dict[str, Any]:
    """The same with two ranks of torchrun, which need no driver beside them."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "ranks.json")
        words = ["--data", options.data, "--task", options.task, "--steps", str(options.steps)]
        ranks = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        command = [*ranks, "-m", "benchmarks.distributed", *words, "--rank-record", str(record)]
        subprocess.run(command, check=True)
        found: dict[str, Any] = json.loads(record.read_text())
        return found


def take_as_rank(task: Any, steps: int, record: Path) -> None:
    """Take steps with the other rank and, as the first one, alone; the first turn only warms up."""
    with closing(Peers()) as peers:
        ways = {"alone": make_task(task, None), "two": make_task(task, peers)}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        sent = 0
        for turn in range(1 + steps // IN_TURN):
            if turn == 1:
                sent = _bytes(peers)
            for name, take in ways.items():
                torch.distributed.barrier()
                for step in range(IN_TURN * turn, IN_TURN * (turn + 1)):
                    if name == "two" or peers.leads:
                        began = time.perf_counter()
                        take(step)
                        if turn:
                            taken[name].append(time.perf_counter() - began)
        if peers.leads:
            medians = {name: statistics.median(times) for name, times in taken.items()}
            found = {
                "seconds": medians,
                "two workers against one": medians["alone"] / medians["two"],
                "bytes a step": {"two": (_bytes(peers) - sent) / len(taken["two"])},
                "steps": len(taken["two"]),
            }
            record.write_text(json.dumps(found))


def _bytes(engine: Futures | Peers) -> int:
    return engine.counts.bytes_sent + engine.counts.bytes_received


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--task", default="snn")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--rank-record", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = tasks.find(options.task, options.data)
    if options.rank_record:
        take_as_rank(task, options.steps, options.rank_record)
        return
    title = f"{task.title.split(',')[0]}, {options.data}"
    found = {
        "problems": {
            title: compare(partial(make_task, task), options.steps),
            f"{title}, ranks of torchrun": compare_ranks(options),
            "an objective of 10 ms an evaluation": compare(make_slow, options.steps),
        },
        **provenance(),
        "command": "python -m benchmarks.distributed",
    }
    text = json.dumps(found, indent=2)
    print(text)
    options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
