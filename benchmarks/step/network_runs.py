"""The second table, row by row: forward passes, our steps and theirs in turn, then the rest."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.step.network_rows import Network
from benchmarks.step.records import Record
from benchmarks.step.runs import Plan, foreign_cores, medians
from benchmarks.step.wire import Worker

OURS, THEIRS = "benchmarks.step.network_ours", "benchmarks.step.network_theirs"
BATCHED_SECONDS = 8.0  # what the plain batched evaluator may take per row
THEIR_SECONDS = 10.0  # what a step of theirs may take before it is ended
CLOCKS = ("wall", "cpu")


def measure(row: Network, plan: Plan, weights: Path) -> Iterator[Record]:
    """One record: everything about a network's step. Weights are kept in a folder."""
    with tempfile.TemporaryDirectory() as cache, plan.ours(cache, OURS) as ours:
        about = ours.ask("setup", name=row.name, threads=plan.threads, folder=str(weights))
        if about["parameters"] != row.parameters:
            found = f"{about['parameters']} parameters, expected {row.parameters}"
            raise RuntimeError(f"{row.name}: {found}")
        ours.ask("step", seed=0)
        record = _interleaved(row, plan, ours, about.pop("weights"))
        record["ours"] |= about
        record["explained"] = ours.ask("explain", seed=0)
        record["batched"] = ours.ask("batched", seed=0, seconds=BATCHED_SECONDS)
        record["peaks"] = ours.ask("peaks")
    yield derive(row, record)


def _interleaved(row: Network, plan: Plan, ours: Worker, weights: str) -> Record:
    """Repeats in turn; every repeat has its own batch, the same for all."""
    forwards: list[Record] = []
    steps: list[Record] = []
    theirs: Record | None = None
    for seed in range(1, plan.repeats + 1):
        forwards.append(ours.ask("forward", seed=seed))
        steps.append(ours.ask("step", seed=seed))
        if plan.their_python is not None and _is_worth_it(theirs):
            theirs = _theirs(row, plan, weights, seed, theirs)
    return {"ours": {"forwards": forwards, "steps": steps}, "theirs": theirs}


def _is_worth_it(theirs: Record | None) -> bool:
    """Whether to time another step of theirs: one does if it failed or did not end in time."""
    return theirs is None or ("steps" in theirs and theirs["steps"][-1]["share"] == 1)


def _theirs(row: Network, plan: Plan, weights: str, seed: int, known: Record | None) -> Record:
    """A step of theirs, with those before it, or why there is none."""
    try:
        with plan.theirs(THEIRS) as theirs:
            about = theirs.ask("setup", name=row.name, threads=plan.threads, weights=weights)
            step = theirs.ask("step", seed=seed, seconds=THEIR_SECONDS)
    except RuntimeError as error:
        return {"refused": str(error).strip().splitlines()[-1]}
    return {**about, "steps": [*(known or {}).get("steps", []), step]}


def derive(row: Network, record: Record) -> Record:
    """Medians and figures beside the raw numbers."""
    ours, theirs, explained = record["ours"], record["theirs"], record["explained"]
    ours["probes"] = round(median(step.get("probes", ours["probes"]) for step in ours["steps"]))
    ours["median"] = {clock: medians(ours["steps"], clock) for clock in CLOCKS}
    ours["forward"] = {clock: medians(ours["forwards"], clock) for clock in CLOCKS}
    ours["figure"] = {
        clock: ours["forward"][clock] * ours["probes"] / ours["median"][clock] for clock in CLOCKS
    }
    ours["recording"] = _block_medians(ours["steps"], "")
    peak = record["peaks"]["peak_operations"]
    for name, block in explained["blocks"].items():
        block |= _block_medians(ours["steps"], name)
        if "wall" in block:
            block["probes"] = min(block["probes"], ours["probes"])
            forwards = block["probes"] / block["wall"]
            block["figure"] = {
                clock: ours["forward"][clock] * block["probes"] / block[clock] for clock in CLOCKS
            }
            block["of_peak"] = block["operations"] * forwards / peak
    batched = record["batched"]
    batched["ratio"] = {clock: batched[clock] / ours["median"][clock] for clock in CLOCKS}
    if theirs and "steps" in theirs:
        theirs["median"] = {clock: medians(theirs["steps"], clock) for clock in CLOCKS}
        theirs["ratio"] = {c: theirs["median"][c] / ours["median"][c] for c in CLOCKS}
    record["foreign_cores"] = foreign_cores(ours["steps"])
    return {"row": row.name, "title": row.title, "must": row.must, "aim": row.aim, **record}


def _block_medians(steps: list[Record], name: str) -> Record:
    """What a block took; nothing, if no step evaluated it apart."""
    found = [step["blocks"][name] for step in steps if name in step["blocks"]]
    return {clock: median(one[clock] for one in found) for clock in CLOCKS} if found else {}
