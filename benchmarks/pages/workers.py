"""Tables about workers: hashes, faults, costs, and the model for many of them."""

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import distributed
from benchmarks.runs import worker_model, worker_tiles
from hardstep._pages import markdown_table

RECORDS = Path(__file__).parents[1] / "results"
NAMES = {  # of engines and faults in the records of `tests.distributed.faults`
    "staged": "workers of one process, faults staged",
    "pool": "process pool",
    "ray": "Ray actors",
    "torchrun": "two ranks",
    "driver": "commands, driver",
    "disk": "commands, disk",
    "wrong step": "answers of another step or twice",
    "raises": "exceptions",
    "nan": "NaN",
    "lost memory": "workers that forget",
    "broken": "executors that break",
    "rank SIGKILL": "SIGKILL",
    "rank SIGSTOP": "SIGSTOP",
    "rank cut": "connections cut",
    "driver SIGKILL": "killed",
    "driver SIGTERM": "asked to end",
    "full disk": "files may not grow past a limit",
}
NOT_YET = "*Not recorded yet.*"


def tables() -> dict[str, str]:
    """What docs/lab/workers.md shows."""
    return {
        "workers hashes": hashes(),
        "workers faults": faults(),
        "workers costs": costs(),
        "workers model": model(),
    }


def hashes() -> str:
    """A row per problem, a column per engine: with how many workers the hash was the local one."""
    lines = _read_lines("workers.jsonl")
    engines = list(dict.fromkeys(one["engine"] for one in lines))[1:]
    rows = []
    for problem in dict.fromkeys(one["problem"] for one in lines):
        own = [one for one in lines if one["problem"] == problem]
        (local,) = (one["hash"] for one in own if one["engine"] == "local")
        row = [problem, local[:8]]
        for engine in engines:
            shared = [one for one in own if one["engine"] == engine]
            same = [str(one["workers"]) for one in shared if one["hash"] == local]
            differ = [str(one["workers"]) for one in shared if one["hash"] != local]
            row.append(
                f"the same with {_join(same)}" + (f"; not {_join(differ)}" if differ else "")
            )
        rows.append(row)
    table = markdown_table(["problem", "hash, one process", *engines], rows)
    return f"{table}\n\n{lines[0]['steps']} steps each; {_describe(lines[0])}."


def faults() -> str:
    """A row per engine: runs, faults, which, and how many runs came to another hash."""
    lines = [one for one in _read_lines("faults.jsonl") if "engine" in one]
    rows = []
    for engine in dict.fromkeys(one["engine"] for one in lines):
        runs = [one for one in lines if one["engine"] == engine]
        kinds = sum((Counter(one["faults"]) for one in runs), Counter())
        said = ", ".join(f"{NAMES.get(kind, kind)} {num}" for kind, num in kinds.most_common())
        differ = sum(not one["same"] for one in runs)
        rows.append([NAMES[engine], str(len(runs)), f"{kinds.total():,}", said, str(differ)])
    total = sum(sum(one["faults"].values()) for one in lines)
    staged = sum(sum(one["faults"].values()) for one in lines if one["engine"] == "staged")
    table = markdown_table(["where", "runs", "faults", "which", "runs that differ"], rows)
    count = f"{total:,} faults in {len(lines)} runs, {staged:,} of them staged in one process"
    return f"{table}\n\n{count}; {_describe(lines[-1])}."


def costs() -> str:
    """Medians of steps, in turn by this process, one worker and two."""
    if not distributed.RECORD.exists():
        return NOT_YET
    record = json.loads(distributed.RECORD.read_text())
    head = ["problem", "one process", "one worker", "two workers", "one worker costs",
            "two against one", "bytes a step, two workers"]  # fmt: skip
    rows, ways = [], ("alone", "one", "two")
    for title, found in record["problems"].items():
        taken, cost = found["seconds"], found.get("one worker against none")
        times = [f"{1000 * taken[w]:.1f} ms" if w in taken else "–" for w in ways]
        rows.append([title, *times, "–" if cost is None else f"{cost:+.1%}",
                     f"{found['two workers against one']:.2f}×",
                     f"{found['bytes a step']['two']:,.0f}"])  # fmt: skip
    steps = max(found["steps"] for found in record["problems"].values())
    made = (
        f"Medians of {steps} steps, a step here, by one worker and by two in turn, one thread each"
    )
    return f"{markdown_table(head, rows)}\n\n{made}; {_describe(record)}."


def model() -> str:
    """Seconds of a step with many workers: formula and simulation."""
    rows = []
    for title, steps in worker_model.read_steps().items():
        alone = statistics.fmean(step.total for step in steps)
        for workers in worker_model.WORKERS:
            plain = worker_model.compare(steps, workers)
            late = worker_model.compare(steps, workers, worker_model.STALLS)
            rows.append([title if workers == 1 else "", f"{workers:,}",
                         *(_seconds(value) for value in (*plain, *late)),
                         f"{alone / plain[1]:.3g}×"])  # fmt: skip
    head = ["problem", "workers", "formula", "simulation", "formula, stalls",
            "simulation, stalls", "speed, simulation"]  # fmt: skip
    record = json.loads(worker_tiles.RECORD.read_text())
    return f"{markdown_table(head, rows)}\n\nTile times: {_describe(record)}."


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def _read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDS / name).read_text().splitlines()]


def _join(numbers: list[str]) -> str:
    return ", ".join(numbers[:-1]) + (" and " if len(numbers) > 1 else "") + "".join(numbers[-1:])


def _describe(record: dict[str, Any]) -> str:
    """Where and when something was recorded."""
    known = f"{record['machine']}, torch {record['torch']}, commit {record['commit']}"
    return f"{known}, {record['date'][:10]}"
