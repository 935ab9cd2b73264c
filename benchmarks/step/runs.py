"""The order of events: ours, theirs, ours, theirs, … on the same batches, then the rest."""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.step.records import Record
from benchmarks.step.rows import Row
from benchmarks.step.wire import Worker

SLOW = 20.0  # seconds; a step of theirs that takes longer needs no warm-up, and two repeats do
BATCHED_SECONDS = 60.0  # what the plain batched evaluator may take per row
DISTURBED = 0.15  # of a core; more than that spent by others, and the numbers are not to be used
SLOW_SETUP = 20.0  # seconds; above, the bases are not drawn a second time


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Args:
        repeats: Timed steps per side.
        threads: Of each worker.
        batch_size: Examples per step.
        their_python: The interpreter of the published package; none leaves theirs out.
        wait: What idle OpenMP threads do. Spinning ones ("active") count as CPU time and, on a
            machine with no core to spare, slow the published package down; its documentation
            says so, advises fewer threads than cores, and names "passive" as a remedy.
    """

    repeats: int
    threads: int
    batch_size: int
    their_python: Path | None
    wait: str

    def ours(
        self, cache: str, module: str = "benchmarks.step.ours", source: Path | None = None
    ) -> Worker:
        """Our worker, whose compiled programs are kept in a folder; `source` holds the package."""
        variables = {"XDG_CACHE_HOME": cache, "OMP_WAIT_POLICY": self.wait}
        if source is not None:
            variables["PYTHONPATH"] = str(source)
        return Worker(Path(sys.executable), module, self.threads, variables)

    def theirs(self, module: str = "benchmarks.step.theirs") -> Worker:
        """Their worker."""
        assert self.their_python is not None
        variables = {"OMP_WAIT_POLICY": self.wait}
        return Worker(self.their_python, module, self.threads, variables)

    def arguments(self, row: Row) -> dict[str, Any]:
        """Of a worker's `setup`."""
        return {"name": row.name, "threads": self.threads, "batch_size": self.batch_size}


def measure(row: Row, plan: Plan) -> Iterator[Record]:
    """One record: everything about the row's step."""
    with tempfile.TemporaryDirectory() as cache:
        with plan.ours(cache) as ours:
            about = ours.ask("setup", **plan.arguments(row))
            _check(row, about, row.probes)
            record = _interleaved(row, plan, ours, about)
            record["batched"] = ours.ask("batched", seed=0, seconds=BATCHED_SECONDS)
            record["limit"] = ours.ask("limit", seed=0)
        if about["setup_seconds"] < SLOW_SETUP:
            record["ours"]["first_step_cached"] = _first_step(row, plan, cache)
    yield _derived(row, record)


def _interleaved(row: Row, plan: Plan, ours: Worker, about: Record) -> Record:
    """Warm-ups, then repeats in turn; every repeat has its own batch, the same on both sides."""
    first = ours.ask("step", seed=0)
    ours_steps: list[Record] = []
    if plan.their_python is None:
        ours_steps = [ours.ask("step", seed=seed) for seed in range(1, plan.repeats + 1)]
        return {"ours": {**about, "first_step": first, "steps": ours_steps}, "theirs": None}
    with plan.theirs() as theirs:
        their_about = theirs.ask("setup", **plan.arguments(row))
        _check_same(about, their_about)
        their_first = theirs.ask("step", seed=0)
        _check(row, {**their_about, **their_first}, row.their_probes)
        slow = their_first["wall"] > SLOW
        their_steps = [their_first] if slow else []
        enough = min(2, plan.repeats) if slow else plan.repeats
        for seed in range(1, plan.repeats + 1):
            ours_steps.append(ours.ask("step", seed=seed))
            if len(their_steps) < enough:
                their_steps.append(theirs.ask("step", seed=seed))
    return {
        "ours": {**about, "first_step": first, "steps": ours_steps},
        "theirs": {**their_about, "first_step": their_first, "steps": their_steps},
    }


def _first_step(row: Row, plan: Plan, cache: str) -> Record:
    """The first step of a new process that finds compiled programs on disk."""
    with plan.ours(cache) as ours:
        ours.ask("setup", **plan.arguments(row))
        return ours.ask("step", seed=0)


def _derived(row: Row, record: Record) -> Record:
    """Medians and ratios beside the raw numbers."""
    ours, theirs, limit = record["ours"], record["theirs"], record["limit"]
    for side in filter(None, (ours, theirs)):
        side["median"] = {name: medians(side["steps"], name) for name in ("wall", "cpu")}
    wall = ours["median"]["wall"]
    evaluating = median(step["parts"]["evaluate"]["wall"] for step in ours["steps"])
    ours["outside_evaluation"] = 1 - evaluating / wall
    for first in ("first_step", "first_step_cached"):
        if first in ours:
            ours[first]["over_median"] = ours[first]["wall"] - wall
    batched = record["batched"]
    batched["ratio"] = {
        "wall": batched["wall"] / evaluating,
        "cpu": batched["cpu"] / median(s["parts"]["evaluate"]["cpu"] for s in ours["steps"]),
    }
    operating = limit["operations"] / limit["peak_operations"]
    moving = limit["bytes"] / limit["peak_bytes"]
    limit["seconds"] = max(operating, moving)
    limit["reached"] = limit["seconds"] / wall
    if theirs:
        record["ratio"] = {
            name: theirs["median"][name] / ours["median"][name] for name in ("wall", "cpu")
        }
    steps = [step for side in (ours, theirs) if side for step in side["steps"]]
    record["foreign_cores"] = foreign_cores(steps)
    return {"row": row.name, "title": row.title, "must": row.must, "aim": row.aim, **record}


def medians(steps: list[Record], name: str) -> float:
    """The median of one time over repeats."""
    return median(step[name] for step in steps)


def foreign_cores(steps: list[Record]) -> float:
    """How many cores other processes kept busy during these steps, on average."""
    return sum(step["foreign"] for step in steps) / sum(step["wall"] for step in steps)


def _check(row: Row, about: Record, probes: int) -> None:
    """The sizes must be those of the table, or another problem was timed."""
    found = (about["parameters"], about["probes"])
    if found != (row.parameters, probes):
        wanted = (row.parameters, probes)
        raise RuntimeError(f"{row.name}: parameters and probes are {found}, expected {wanted}")


def _check_same(ours: Record, theirs: Record) -> None:
    """Both sides must use the same torch, temperature and lengths."""
    for name in ("temperature", "step_radius", "probe_radius"):
        if abs(ours[name] - theirs[name]) > 1e-6 * ours[name]:
            raise RuntimeError(f"{name} is {ours[name]} on our side, {theirs[name]} on theirs")
    if ours["versions"]["torch"] != theirs["versions"]["torch"]:
        raise RuntimeError(f"torch differs: {ours['versions']} and {theirs['versions']}")
