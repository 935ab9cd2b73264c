"""Where the time of our step goes: wall-clock by part, on the rows whose aim is not reached.

The parts are functions of the package, timed from outside; what none of them covers is "other".
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pkgutil import resolve_name
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from benchmarks.step.records import Record
from benchmarks.step.rows import Row
from benchmarks.step.runs import Plan

ROWS = ("snn", "mlp", "int8", "staircase", "argmax", "moe", "mlp-layer")
EVALUATOR = "hardstep.evaluation.tiers"
KERNEL = "hardstep.evaluation.fused.bind"
PARTS = {  # functions by part; none of them calls another one
    "base pass": (f"{EVALUATOR}.record",),
    "products with directions": (f"{KERNEL}.respond",),
    "kernels": (f"{KERNEL}.run_kernel",),
}


@contextmanager
def timed_parts() -> Iterator[dict[str, float]]:
    """Fills in the seconds spent in each part inside the block."""
    spent = dict.fromkeys(PARTS, 0.0)
    patches = [
        patch(target, _timing(target, part, spent))
        for part, targets in PARTS.items()
        for target in targets
    ]
    for one in patches:
        one.start()
    try:
        yield spent
    finally:
        for one in patches:
            one.stop()


def _timing(target: str, part: str, spent: dict[str, float]) -> Callable[..., Any]:
    function = resolve_name(target)

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[part] += perf_counter() - began

    return measured


def measure(row: Row, plan: Plan) -> Iterator[Record]:
    """One record: medians of every part."""
    with tempfile.TemporaryDirectory() as cache, plan.ours(cache) as ours:
        about = ours.ask("setup", **plan.arguments(row))
        ours.ask("step", seed=0)
        found = [ours.ask("profile", seed=seed) for seed in range(1, plan.repeats + 1)]
    parts = {name: median(step["spent"][name] for step in found) for name in found[0]["spent"]}
    yield {
        "row": row.name,
        "title": row.title,
        "ours": {"versions": about["versions"]},
        "parts": parts,
        "foreign_cores": sum(s["foreign"] for s in found) / sum(s["wall"] for s in found),
    }
