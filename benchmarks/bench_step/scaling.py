"""How our step grows: time ~ value^exponent, fitted over probes and over the batch.

Probes are varied through the rank, so every point is a whole step. Linear growth is exponent 1; a
fixed cost per step makes it smaller.
"""

import math
import tempfile
from collections.abc import Iterator
from statistics import median

from bench_step.records import Record
from bench_step.rows import Row
from bench_step.runs import Plan, foreign_cores, medians
from bench_step.wire import Worker

# From the sizes of the table upward: below them the fixed cost of a step still shows.
RANKS = {"snn": (4, 8, 16, 32), "mlp": (8, 16, 32, 64)}
BATCHES = (512, 1024, 2048, 4096)


def measure(row: Row, plan: Plan) -> Iterator[Record]:
    """A record per axis."""
    with tempfile.TemporaryDirectory() as cache, plan.ours(cache) as ours:
        yield _fitted(row, "probes", list(_over_probes(row, plan, ours)))
        yield _fitted(row, "batch", list(_over_batches(row, plan, ours)))


def _over_probes(row: Row, plan: Plan, ours: Worker) -> Iterator[Record]:
    for rank in RANKS[row.name]:
        about = ours.ask("setup", rank=rank, **plan.arguments(row))
        yield _point(about, about["probes"], plan, ours, plan.batch_size)


def _over_batches(row: Row, plan: Plan, ours: Worker) -> Iterator[Record]:
    about = ours.ask("setup", **plan.arguments(row))
    for size in BATCHES:
        yield _point(about, size, plan, ours, size)


def _point(about: Record, value: int, plan: Plan, ours: Worker, batch_size: int) -> Record:
    """Medians of one size, after a warm-up."""
    first, *steps = [
        ours.ask("step", seed=seed, batch_size=batch_size) for seed in range(plan.repeats + 1)
    ]
    return {
        "value": value,
        "versions": about["versions"],
        "step_wall": medians(steps, "wall"),
        "step_cpu": medians(steps, "cpu"),
        "evaluation_wall": median(s["parts"]["evaluate"]["wall"] for s in steps),
        "evaluation_cpu": median(s["parts"]["evaluate"]["cpu"] for s in steps),
        "first_step": first,
        "steps": steps,
    }


def _fitted(row: Row, axis: str, points: list[Record]) -> Record:
    times = ("step_wall", "step_cpu", "evaluation_wall", "evaluation_cpu")
    values = [point["value"] for point in points]
    exponents = {name: exponent(values, [point[name] for point in points]) for name in times}
    versions = points[0]["versions"]
    return {
        "row": row.name,
        "axis": axis,
        "ours": {"versions": versions},
        "points": [{k: v for k, v in point.items() if k != "versions"} for point in points],
        "exponents": exponents,
        "foreign_cores": foreign_cores([step for point in points for step in point["steps"]]),
    }


def exponent(values: list[float], seconds: list[float]) -> float:
    """The slope of log seconds over log values, by least squares."""
    across, up = [math.log(v) for v in values], [math.log(s) for s in seconds]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    products = sum((a - middle) * (u - height) for a, u in zip(across, up, strict=True))
    return products / sum((a - middle) ** 2 for a in across)
