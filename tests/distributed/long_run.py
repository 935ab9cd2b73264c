"""Five problems on every engine: `python -m tests.distributed.long_run [--out FILE] [--steps 12]`.

Every way to share a run has to come to the same hash of parameters and optimizer state. A line per
problem and way goes to the file, which `python -m benchmarks.pages.results` makes a table of. Ways
that are in the file already are not tried again: delete it to begin again.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch

from hardstep._files import provenance
from hardstep.distributed import Futures, Ray, end_with_parent

from .problems import LONG_RUN

ROOT = Path(__file__).parents[2]
OUT = ROOT / "benchmarks" / "results" / "workers.jsonl"


def run_here(engine, steps):
    return {name: train(engine, steps=steps) for name, train in LONG_RUN.items()}


def run_locally(workers, steps):
    """One process."""
    del workers
    return run_here(None, steps)


def run_on_pool(workers, steps):
    """A process pool."""
    context = get_context("spawn")
    make = partial(ProcessPoolExecutor, workers, mp_context=context, initializer=end_with_parent)
    with Futures(make, workers) as engine:
        return run_here(engine, steps)


def run_on_ray(workers, steps):
    """Ray actors, all of them from the first step on."""
    with Ray(workers=workers) as engine:
        while engine.workers < workers:
            engine.prepare()
        return run_here(engine, steps)


def run_on_ranks(workers, steps):
    """Ranks of torchrun; all of them have to agree."""
    words = ["--standalone", "--nproc-per-node", str(workers), "-m", "tests.distributed.problems"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words, *LONG_RUN],
        env=os.environ | {"LONG_RUN": "1", "STEPS": str(steps)},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == workers, done.stdout
    assert all(told[0][name] == one[name] for one in told for name in LONG_RUN), told
    return {name: told[0][name] for name in LONG_RUN}


WAYS = {  # how, and with how many
    "local": (run_locally, [1]),
    "process pool": (run_on_pool, [1, 2, 3, 4]),
    "torchrun": (run_on_ranks, [2, 3, 4]),
    "Ray": (run_on_ray, [1, 2, 3, 4]),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}  # for those that we start
    torch.set_num_threads(1)
    known = options.out.read_text().splitlines() if options.out.exists() else []
    lines = [json.loads(line) for line in known]
    done = {(line["engine"], line["workers"]) for line in lines}
    ways = [(engine, *way) for engine, (run, nums) in WAYS.items() for way in product([run], nums)]
    for engine, run, workers in ways:
        if (engine, workers) in done:
            continue
        began = time.perf_counter()
        for problem, found in run(workers, options.steps).items():
            lines.append({"problem": problem, "engine": engine, "workers": workers,
                          "steps": options.steps, "hash": found} | provenance())  # fmt: skip
        options.out.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        print(f"{engine}, {workers}: {time.perf_counter() - began:.1f} s", flush=True)
    hashes = {(line["problem"], line["steps"], line["hash"]) for line in lines}
    differ = [name for name in LONG_RUN if sum(problem == name for problem, *_ in hashes) > 1]
    print(f"problems whose hashes differ: {', '.join(differ) or 'none'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
