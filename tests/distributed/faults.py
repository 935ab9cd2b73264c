"""Faults on purpose: `python -m tests.distributed.faults --out faults.jsonl [--only pool,ray]`.

Every run has to come to the hash of an undisturbed one: by itself, or, where its engine cannot go
on (a rank without its peer, a driver that was killed, a full disk), after it stopped with one
sentence and was resumed. A line per run says which faults it had; the last line has the counts.
"""

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil

from hardstep._files import provenance
from hardstep.distributed import Futures, Patience
from hardstep.distributed.worker import end_with_parent
from hardstep.training import checkpoints

from .executors import Staged
from .problems import TRAIN, hash_saved

ROOT = Path(__file__).parents[2]
IMPATIENT = Patience(tries=6, straggling=2.0, at_least=0.5, timeout=120)
STEPS = {"spiking": 60, "policy": 30, "closure": 400}  # of runs whose workers are killed
TRAINED = ["train", "snn", "--steps", "40", "--seed", "5"]


def staged(name, draw):
    """Answers that are late, double, of another step, NaN, or exceptions; workers that forget."""
    faults, kept = [], []

    def fault(number, worker, reply):
        kept.append(reply)
        kind = draw.choice(["wrong step", "raises", "nan", "lost memory", "broken", *[""] * 245])
        if not kind or (kind == "nan" and not hasattr(reply, "rows")):
            return reply
        faults.append(kind)
        if kind == "raises":
            raise OSError("on purpose")
        if kind == "broken":
            raise BrokenExecutor("on purpose")
        if kind == "nan":
            return reply._replace(rows=np.full(reply.shape, np.nan).tobytes())
        if kind == "lost memory":
            executor.forget(worker)
            return reply
        return draw.choice(kept)  # late, double or of another step

    executor = Staged(3, fault)
    found = TRAIN[name](Futures(lambda: executor, 3, patience=IMPATIENT), steps=STEPS[name])
    return found, faults


@contextmanager
def tormented(find, engine, draw, faults, every):
    """While this lasts, processes that `find` lists are killed or stopped at random times.

    After each fault the engine may answer a few tiles, or nothing would ever come of it.
    """
    over, kinds = threading.Event(), ["SIGKILL", "SIGSTOP"]

    def torment():
        answered = 0
        while not over.wait(draw.uniform(*every)):
            alive = find()
            if not alive or engine.counts.tiles < answered + 4:
                continue
            answered = engine.counts.tiles
            victim, kind = draw.choice(alive), draw.choice(kinds)
            try:
                os.kill(victim, getattr(signal, kind))
                faults.append(kind)
                if kind == "SIGSTOP":
                    threading.Timer(draw.uniform(0.5, 3), resurrect, [victim]).start()
            except ProcessLookupError:
                continue

    thread = threading.Thread(target=torment)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def resurrect(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def list_children(word):
    """Own processes whose command line has a word."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if word in " ".join(child.cmdline()):
                found.append(child.pid)
        except psutil.Error:
            continue
    return found


def pool(name, draw):
    """Processes of a pool are killed and stopped."""
    context, faults = get_context("forkserver"), []
    context.set_forkserver_preload(["hardstep.distributed.worker", "hardstep.rl.agent"])
    make = partial(ProcessPoolExecutor, 3, mp_context=context, initializer=end_with_parent)
    with Futures(make, 3, patience=IMPATIENT) as engine:
        TRAIN["closure"](engine, steps=1)  # processes are up
        workers = partial(list_workers, engine)
        with tormented(workers, engine, draw, faults, (0.1, 0.6)):
            found = TRAIN[name](engine, steps=STEPS[name])
        for pid in list_workers(engine):
            resurrect(pid)
    return found, faults


def list_workers(engine):
    """Own processes that have answered; numbers are used again, so others may have theirs."""
    pids = {int(name.rpartition(":")[2]) for name in list(engine.counts.names)}
    return [child.pid for child in psutil.Process().children(recursive=True) if child.pid in pids]


def ray(name, draw, _engines=[]):  # noqa: B006  # one Ray for all runs
    """Actors are killed and stopped."""
    from hardstep.distributed import Ray

    if not _engines:
        _engines.append(Ray(workers=2, timeout=20.0, patience=IMPATIENT))
    faults = []
    find = partial(list_children, "ray::_Actor")
    with tormented(find, _engines[0], draw, faults, (0.2, 1.0)):
        found = TRAIN[name](_engines[0], steps=STEPS[name])
    return found, faults


def environment(**more):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def start(words, preexec=None, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "hardstep", *words],
        env=environment(**more), cwd=ROOT, text=True, preexec_fn=preexec,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def run_until_done(folder, words):
    """Resume until a run is complete; its hash."""
    for _ in range(3):
        resumed = ["--resume"] if (folder / "checkpoint.pt").exists() else []
        if start([*TRAINED, *words, "--out", str(folder), *resumed]).wait() == 0:
            break
    return hash_saved(checkpoints.load(folder / "checkpoint.pt"))


def wait_for_steps(folder, process):
    log = folder / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.05)


def driver(folder, draw):
    """The driver is killed, or asked to end; its workers end with it, and it resumes."""
    kind = draw.choice(["SIGKILL", "SIGTERM"])
    process = start([*TRAINED, "--workers", "2", "--out", str(folder)])
    wait_for_steps(folder, process)
    time.sleep(draw.uniform(0, 1))
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, kind))
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive, f"left running: {alive}"
    words = draw.choice([[], ["--workers", "1"], ["--workers", "3"]])
    return run_until_done(folder, words), [f"driver {kind}"]


def cut_connections(pid):
    """End the connections of a process between two ranks, and no others."""
    for one in psutil.Process(pid).net_connections("tcp"):
        if one.status == psutil.CONN_ESTABLISHED:
            ends = ["sport", "=", f":{one.laddr.port}", "and", "dport", "=", f":{one.raddr.port}"]
            subprocess.run(["ss", "-K", *ends], capture_output=True, check=False)


def torchrun(folder, draw):
    """A rank is killed or stopped, or its connections are cut; the other ends and resumes."""
    kind = draw.choice(["SIGKILL"] * 5 + ["SIGSTOP"] + ["cut"] * 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [*TRAINED, "--out", str(folder)]
    ranks = [start(words, RANK=str(r), LOCAL_RANK=str(r), **common) for r in range(2)]
    wait_for_steps(folder, ranks[0])
    time.sleep(draw.uniform(0, 1))
    if kind == "cut":
        cut_connections(ranks[1].pid)
    else:
        ranks[1].send_signal(getattr(signal, kind))
    _, said = ranks[0].communicate(timeout=90)
    ranks[1].kill()
    ranks[1].communicate()
    last = said.strip().splitlines()[-1]
    assert ranks[0].returncode in (0, 2), (kind, said)
    assert ranks[0].returncode == 0 or last.startswith("hardstep: rank 0 of 2 has lost"), said
    return run_until_done(folder, draw.choice([[], ["--workers", "2"]])), [f"rank {kind}"]


def disk(folder, draw):
    """Files may not grow past a limit, so that checkpoints cannot be saved."""
    size = draw.choice([1 << 10, 20 << 10])
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    process = start([*TRAINED, "--workers", "2", "--out", str(folder)], preexec=limit)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert said.strip().splitlines()[-1].startswith("hardstep: "), said
    for left in folder.glob("*") if not (folder / "checkpoint.pt").exists() else ():
        left.unlink()
    return run_until_done(folder, ["--workers", "2"]), ["full disk"]


IN_PROCESS = {"staged": staged, "pool": pool, "ray": ray}
AS_COMMAND = {"driver": driver, "torchrun": torchrun, "disk": disk}
RUNS = {"staged": 3, "pool": 9, "ray": 4, "driver": 2, "torchrun": 3, "disk": 1}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, counts, failed = random.Random(options.seed), Counter(), 0
    expected = {name: train(None, steps=STEPS[name]) for name, train in TRAIN.items()}
    with tempfile.TemporaryDirectory() as folder, options.out.open("a") as out:
        whole = ""
        for engine in options.only.split(","):
            for number in range(RUNS[engine]):
                began = time.perf_counter()
                if engine in IN_PROCESS:
                    name = ("closure", *TRAIN)[number % 4]
                    found, faults = IN_PROCESS[engine](name, draw)
                    same = found == expected[name]
                else:
                    whole = whole or run_until_done(Path(folder) / "whole", [])
                    name = "snn"
                    found, faults = AS_COMMAND[engine](Path(folder) / f"{engine}{number}", draw)
                    same = found == whole
                counts.update(f"{engine}: {kind}" for kind in faults)
                failed += not same
                line = {"engine": engine, "problem": name, "faults": Counter(faults), "same": same}
                line |= {"seconds": round(time.perf_counter() - began, 1), **provenance()}
                print(json.dumps(line), file=out, flush=True)
                print(json.dumps(line), flush=True)
        total = {"faults": counts.total(), "by kind": counts, "runs that differ": failed}
        print(json.dumps(total), file=out)
        print(json.dumps(total))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
