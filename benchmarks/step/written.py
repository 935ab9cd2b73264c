"""The recurrence written by hand against the same network built from `hardstep.nn`.

Both are ours and take turns in two workers; the fast path belongs to operations, so which layer
classes a model is built from should not matter.
"""

import tempfile
from collections.abc import Iterator

from benchmarks.step.records import Record
from benchmarks.step.rows import Row
from benchmarks.step.runs import Plan, foreign_cores, medians

ROWS = ("snn",)


def measure(row: Row, plan: Plan) -> Iterator[Record]:
    """One record: medians of both, and how fast the hand-written one is of the other."""
    with (
        tempfile.TemporaryDirectory() as cache,
        plan.ours(cache) as by_hand,
        plan.ours(cache) as from_layers,
    ):
        about = by_hand.ask("setup", **plan.arguments(row))
        from_layers.ask("setup", **plan.arguments(row), gallery=True)
        by_hand.ask("step", seed=0)
        from_layers.ask("step", seed=0)
        steps: dict[str, list[Record]] = {"by_hand": [], "from_layers": []}
        for seed in range(1, plan.repeats + 1):
            steps["by_hand"].append(by_hand.ask("step", seed=seed))
            steps["from_layers"].append(from_layers.ask("step", seed=seed))
    times = {
        name: {"wall": medians(found, "wall"), "cpu": medians(found, "cpu")}
        for name, found in steps.items()
    }
    yield {
        "row": row.name,
        "ours": {"versions": about["versions"]},
        **{name: {"median": times[name], "steps": found} for name, found in steps.items()},
        "speed": {
            clock: times["from_layers"][clock] / times["by_hand"][clock]
            for clock in ("wall", "cpu")
        },
        "foreign_cores": foreign_cores([s for found in steps.values() for s in found]),
    }
