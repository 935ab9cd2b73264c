"""Peak memory of a forward-only step and of backpropagation through time, against T.

    python -m benchmarks.runs.spiking_memory             run what is not recorded yet, then draw
    python -m benchmarks.runs.spiking_memory --table     print the table of docs/lab/evaluation.md
    python -m benchmarks.runs.spiking_memory --draw      draw docs/lab/memory.png again

A spiking VGG of 2.4 M parameters, batch 4. `ours` is a whole PolyStep step (propose, evaluate,
advance) with a memory budget; a full step has 105,980 probes and differs from this one only in
how often it evaluates, so the first one or two particles of every block are evaluated, all
their probes, and both counts are recorded. `bptt` is a forward and a backward pass of the same
network with smooth neurons. Every point is a process of its own and appends one JSON line to
benchmarks/results/spiking-memory.jsonl.

Two measures of memory, both above the weights, the bases and all else that is there before:

- live_peak_bytes: tensors alive at once, each storage counted once. This is what is drawn: it
  is the same on every machine, and what the two methods differ in.
- rss_peak_bytes - rss_before_bytes: growth of the process as the system sees it (VmHWM, reset
  before). Includes what convolution kernels and the allocator take for themselves. The counter
  of live tensors is on during ours, off during bptt's, so its own memory counts against ours.

And of time, for three of the points, processor seconds in which the same probes are evaluated
once more, after the first time with its comparison with plain forward passes and without the
counter:

- cpu_seconds: as the evaluator does it.
- cpu_seconds_batched: by whole forward passes in batches, within the same budget.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import torch
import torch.nn.functional as F
from matplotlib import pyplot

from hardstep._files import provenance
from hardstep._pages import markdown_table
from hardstep.evaluation import Batched, Incremental
from hardstep.evaluation.memory import LiveBytes
from hardstep.geometry import Orthoplex
from hardstep.nn import LIF, SmoothLIF, SpikingVGG11Small, build
from hardstep.optim import PolyStep
from hardstep.subspaces import RowWise

RECORDS = Path(__file__).parents[1] / "results" / "spiking-memory.jsonl"
PICTURE = Path(__file__).parents[2] / "docs" / "lab" / "memory.png"
TIMES = (25, 50, 100, 200, 400)
PARTICLES = (1, 2)  # evaluated per block
TIMED = (25, 100, 400)  # time steps of which times are recorded, too, with one particle
BATCH = 4
BUDGET = 24 << 20
PUBLISHED = {"ours": {25: 31.8, 400: 51.6}, "bptt": {25: 132.3, 400: 1538.2}}  # MB, the paper's
INK, ACCENT, QUIET = "#1f2933", "#c2410c", "#9aa5b1"


class Point(NamedTuple):
    """One process."""

    method: str
    num_steps: int
    particles_per_block: int  # 0 for bptt


POINTS = [
    *(Point("bptt", num_steps, 0) for num_steps in TIMES),
    *(Point("ours", num_steps, particles) for particles in PARTICLES for num_steps in TIMES),
]


# -- measuring, in a process of its own ------------------------------------------------------


def network(num_steps: int, smooth: bool) -> SpikingVGG11Small:
    """The network at weights where all of its layers spike."""
    neuron = SmoothLIF() if smooth else LIF()
    model = build(lambda: SpikingVGG11Small(num_steps, lif=neuron), 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0 if parameter.dim() > 1 else 1.0)
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Random images: memory does not depend on what they show."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 3, 32, 32, generator=generator)
    return images, torch.randint(0, 10, (BATCH,), generator=generator)


def status(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


def start_watching() -> int:
    """Give free memory back, reset the peak, and return what is resident."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def measure_ours(point: Point) -> dict:
    """One step whose budget sets the memory."""
    model, (images, labels) = network(1, smooth=False), batch()
    settings = {"subspace": RowWise(rank=4), "polytope": Orthoplex(2)}
    evaluator = Incremental(memory_budget=BUDGET)
    opt = PolyStep(model, evaluator=evaluator, seed=0, **settings)
    blocks = opt.subspace.blocks
    starts = torch.tensor([0, *(len(block.group_sizes) for block in blocks)]).cumsum(0)
    block_of = torch.bucketize(opt.particles.group, starts, right=True) - 1
    chosen = [(block_of == n).nonzero()[: point.particles_per_block, 0] for n in range(len(blocks))]
    rows = torch.cat(chosen)

    # Loads the libraries' code, with one time step and one candidate at a time.
    warm = PolyStep(model, evaluator=Incremental(memory_budget=1), seed=0, **settings)
    warm.evaluate(warm.propose()._replace(rows=rows[:1]), images, labels, F.cross_entropy)
    del warm
    model.num_steps = point.num_steps

    before, began = start_watching(), time.perf_counter()
    with LiveBytes() as live:
        proposal = opt.propose()._replace(rows=rows)
        losses = opt.evaluate(proposal, images, labels, F.cross_entropy)
        opt.advance(proposal, losses.nan_to_num(float(losses[rows].mean())))
    peak, seconds = status("VmHWM"), time.perf_counter() - began
    note = f"{evaluator.note}; {evaluator.fallback.note}"
    times = {}
    for name, one in (("", evaluator), ("_batched", Batched(memory_budget=BUDGET))):
        opt.evaluator = one
        began = time.process_time()
        opt.evaluate(opt.propose()._replace(rows=rows), images, labels, F.cross_entropy)
        times[f"cpu_seconds{name}"] = round(time.process_time() - began, 2)
    return {
        "rss_before_bytes": before,
        "rss_peak_bytes": peak,
        "live_peak_bytes": live.peak,
        "seconds": round(seconds, 2),
        "memory_budget": BUDGET,
        "evaluations": proposal.evaluations,
        "evaluations_of_a_full_step": opt.evaluations_per_step,
        "blocks": len(blocks),
        "bases_bytes": opt.subspace.memory,
        "note": note,
        **times,
    } | sizes(model)


def measure_bptt(point: Point) -> dict:
    """Forward and backward, first without and then with the counter of live tensors."""
    model, (images, labels) = network(1, smooth=True), batch()

    def backward() -> None:
        F.cross_entropy(model(images), labels).backward()
        model.zero_grad(set_to_none=True)

    backward()
    model.num_steps = point.num_steps
    before, began = start_watching(), time.perf_counter()
    backward()
    peak, seconds = status("VmHWM"), time.perf_counter() - began
    with LiveBytes() as live:
        backward()
    return {
        "rss_before_bytes": before,
        "rss_peak_bytes": peak,
        "live_peak_bytes": live.peak,
        "seconds": round(seconds, 2),
    } | sizes(model)


def sizes(model: SpikingVGG11Small) -> dict:
    """What the model is."""
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": numbers, "weights_bytes": 4 * numbers, "batch": BATCH}


# -- recording ------------------------------------------------------------------------------


def is_missing(point: Point, known: dict[Point, dict]) -> bool:
    """Whether a point has to be measured; lines from before times were recorded do for memory."""
    is_timed = point.particles_per_block == 1 and point.num_steps in TIMED
    return point not in known or (is_timed and "cpu_seconds" not in known[point])


def records() -> dict[Point, dict]:
    """What has been recorded: of every point, the last line."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    found = [json.loads(line) for line in lines]
    return {Point(*(record[field] for field in Point._fields)): record for record in found}


def run(point: Point) -> None:
    """Measure one point in a fresh process and append it."""
    command = [sys.executable, __file__, "--point", *map(str, point)]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=threads)
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as stream:
        stream.write(done.stdout)
    print(done.stdout, end="", flush=True)


def measured(point: Point) -> str:
    """The line of a point, as this process measures it."""
    result = {"ours": measure_ours, "bptt": measure_bptt}[point.method](point)
    where = provenance() | {
        "command": f"OMP_NUM_THREADS=1 python -m benchmarks.runs.spiking_memory --point "
        f"{' '.join(map(str, point))}"
    }
    return json.dumps(point._asdict() | result | where)


# -- showing --------------------------------------------------------------------------------


def live_mb(record: dict) -> float:
    """Megabytes of live tensors."""
    return record["live_peak_bytes"] / 1e6


def rss_mb(record: dict) -> float:
    """Megabytes that the process grew by."""
    return (record["rss_peak_bytes"] - record["rss_before_bytes"]) / 1e6


def compare_times(record: dict) -> str:
    """Processor time of whole forward passes in batches against ours, if it was recorded."""
    if "cpu_seconds" not in record:
        return "–"
    return f"{record['cpu_seconds_batched'] / record['cpu_seconds']:.1f}"


def table() -> str:
    """Markdown, one row per number of time steps: live tensors, and RSS in brackets."""
    known = records()
    lines = []
    for num_steps in TIMES:
        points = [Point("ours", num_steps, particles) for particles in PARTICLES]
        points.append(Point("bptt", num_steps, 0))
        if not all(point in known for point in points):
            continue
        found = [known[point] for point in points]
        cells = [f"{live_mb(record):,.1f} MB ({rss_mb(record):,.1f})" for record in found]
        # Against the larger of the two subsets.
        live, rss = (size(found[-1]) / max(map(size, found[:-1])) for size in (live_mb, rss_mb))
        ratio = f"{live:.1f} ({rss:.1f})"
        lines.append([str(num_steps), *cells, ratio, compare_times(found[0])])
    head = ["T", "ours, 1 particle a block", "ours, 2 particles", "BPTT", "BPTT / ours"]
    return markdown_table([*head, "time, batched / ours"], lines)


def draw() -> None:
    """Two lines, and what the paper published."""
    known = records()
    figure, axes = pyplot.subplots(figsize=(7, 4.4), layout="constrained")
    lines = {
        "bptt": (INK, "backpropagation through time", 0),
        "ours": (ACCENT, f"PolyStep, budget {BUDGET / 1e6:.0f} MB", PARTICLES[-1]),
    }
    for method, (shade, label, particles) in lines.items():
        sizes = [live_mb(known[Point(method, num_steps, particles)]) for num_steps in TIMES]
        axes.plot(TIMES, sizes, color=shade, marker="o", markersize=4)
        offset, side = ((0, -14), "top") if method == "ours" else ((0, 10), "bottom")
        for num_steps, size in ((TIMES[0], sizes[0]), (TIMES[-1], sizes[-1])):
            axes.annotate(
                f"{size:,.0f} MB", (num_steps, size), xytext=offset, textcoords="offset points",
                ha="center", va=side, color=shade, fontsize=9,
            )  # fmt: skip
        axes.annotate(
            label, (100, sizes[2]), xytext=offset, textcoords="offset points",
            ha="center" if method == "ours" else "right", va=side, color=shade,
        )  # fmt: skip
        published = PUBLISHED[method]
        axes.plot(
            list(published), list(published.values()), "x", color=shade, alpha=0.35,
            label="published by the paper, both methods" if method == "bptt" else None,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="time steps T", xlim=(20, 500), ylim=(10, 4000))
    axes.set_ylabel("peak of live tensors above weights and bases, MB")
    axes.set_xticks(TIMES, labels=[str(num_steps) for num_steps in TIMES])
    axes.set_xticks([], minor=True)
    axes.set_yticks([10, 100, 1000], labels=["10", "100", "1,000"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, labelcolor=QUIET)
    axes.set_title("spiking VGG, 2.4 M parameters, batch 4", loc="left", fontsize=10, color=INK)
    figure.savefig(PICTURE, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Measure a point, print, draw, or do all that is missing."""
    if "--point" in sys.argv:
        method, *numbers = sys.argv[sys.argv.index("--point") + 1 :]
        print(measured(Point(method, *map(int, numbers))))
        return
    if "--table" not in sys.argv:
        if "--draw" not in sys.argv:
            known = records()
            for point in [point for point in POINTS if is_missing(point, known)]:
                run(point)
        draw()
    print(table())


if __name__ == "__main__":
    main()
