"""How our step grows: time ~ value^exponent, fitted over probes and over the batch.

Probes are varied by asking for a share of a full-space step's particles, so that every point has
the same mixture of layers; the batch by whole row-wise steps. Linear growth is exponent 1; a fixed
cost per step (the recorded forward pass) makes it smaller, so sizes start where it is small.
"""

import math
import tempfile
from collections.abc import Iterator
from statistics import median

from benchmarks.step.records import Record
from benchmarks.step.rows import BY_NAME, Row
from benchmarks.step.runs import Plan, foreign_cores, medians
from benchmarks.step.wire import Worker

ROWS = ("snn", "mlp")
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
BATCHES = (1024, 2048, 4096, 8192)


def measure(row: Row, plan: Plan) -> Iterator[Record]:
    """A record per axis."""
    with tempfile.TemporaryDirectory() as cache, plan.ours(cache) as ours:
        yield _fitted(row, "probes", list(_over_probes(row, plan, ours)))
        yield _fitted(row, "batch", list(_over_batches(row, plan, ours)))


def _over_probes(row: Row, plan: Plan, ours: Worker) -> Iterator[Record]:
    whole = BY_NAME[f"{row.name}-full"]
    about = ours.ask("setup", **plan.arguments(whole))
    for share in SHARES:
        first, *parts = [
            ours.ask("part", seed=seed, share=share) for seed in range(plan.repeats + 1)
        ]
        yield {
            "value": share * about["probes"],
            "versions": about["versions"],
            "evaluation_wall": medians(parts, "wall"),
            "evaluation_cpu": medians(parts, "cpu"),
            "first_step": first,
            "steps": parts,
        }


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
    all_times = ("step_wall", "step_cpu", "evaluation_wall", "evaluation_cpu")
    times = [name for name in all_times if name in points[0]]
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
