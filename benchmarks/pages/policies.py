"""Policies, from records: normalized returns and interactions of every method."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.pages.printed import find_table, parse
from hardstep._pages import markdown_table
from hardstep.bench.records import Record, load

RESULTS = Path(__file__).parents[1] / "results"
RECORDS, BODIES = RESULTS / "rl.jsonl", RESULTS / "mujoco.jsonl"
THROUGHPUT = RESULTS / "rl-throughput.jsonl"
CELLS = {
    f"{stem}{suffix}": f"{name} {words}"
    for stem, name in (("cartpole", "CartPole"), ("acrobot", "Acrobot"))
    for suffix, words in (("", "float"), ("-int8", "INT8"), ("-binary", "binary"))
}
ANCHORS = {"cartpole": (22.0, 500.0), "acrobot": (-500.0, -80.0)}  # normalized 0 and 1
NAMES = {
    "polystep": "PolyStep",
    "openai-es": "OpenAI-ES",
    "cma-es": "CMA-ES",
    "ppo": "PPO",
    "ppo-ste": "PPO, straight-through estimator",
    "dqn": "DQN",
    "ars": "ARS, linear",
    "ars-mlp": "ARS, 16 units",
}


def normalize(task: str, value: float) -> float:
    """A return between the anchors of its environment; not clipped."""
    low, high = ANCHORS[task.partition("-")[0]]
    return (value - low) / (high - low)


def clip(score: float) -> float:
    """Into [0, 1]."""
    return min(1.0, max(0.0, score))


def _line(record: Record) -> str:
    budget = record["budget"]
    amount = budget["amount"]
    if record.get("variant") == "paper":
        return "PolyStep, the paper's settings, 200 steps"
    name = NAMES[record["method"]]
    if budget["axis"] == "interactions":
        return f"{name}, {amount / 1e6:g} million interactions"
    return (
        f"{name}, own steps" if record["method"] == "polystep" else f"{name}, {amount:,.0f} steps"
    )


def _cell(task: str, runs: Sequence[Record]) -> str:
    """Mean over seeds, clipped after averaging; the spread is of the seeds' clipped scores."""
    if not runs:
        return "–"
    scores = [normalize(task, float(run["test"])) for run in runs]
    spread = f" ± {stdev(map(clip, scores)):.3f}" if len(scores) > 1 else ""
    millions = fmean(run["interactions"] for run in runs) / 1e6
    seeds = "" if len(scores) == 5 else f", {len(scores)} seed{'s' if len(scores) > 1 else ''}"
    frozen = "†" if runs[0]["stopped"].startswith("no gradient") else ""
    return f"{clip(fmean(scores)):.3f}{spread} ({millions:.2f} M{seeds}{frozen})"


def _rank(line: str) -> tuple[bool, bool]:
    """Ours first, then the paper's settings of the same method; the rest as recorded."""
    return not line.startswith("PolyStep"), "the paper's settings" in line


def table() -> str:
    """A line per method and budget, a column per cell; in brackets, million interactions."""
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in load(RECORDS).records:
        if record["task"] in CELLS and not record.get("stage") and "test" in record:
            found[_line(record)][record["task"]].append(record)
    lines = [
        [name, *(_cell(task, cells[task]) for task in CELLS)]
        for name, cells in sorted(found.items(), key=lambda item: _rank(item[0]))
    ]
    lines += read_paper()
    return markdown_table(["method", *CELLS.values()], lines)


def read_paper() -> list[list[str]]:
    """A line for each method that the paper prints: returns, and million interactions."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in find_table("tab:rl_nondiff")["rows"]:
        score = parse(row["printed"], seeds=5).mean
        found[NAMES[row["where"]["method"]]].append(f"{score:.3f} ({row['millions']} M)")
    return [[f"{name}, printed in the paper", *cells] for name, cells in found.items()]


def worst() -> str:
    """The lowest normalized return of any seed of PolyStep with its own steps, by cell."""
    runs = [r for r in load(RECORDS).records if r["task"] in CELLS and "test" in r]
    own = [r for r in runs if _line(r) == "PolyStep, own steps"]
    lows = {
        words: [clip(normalize(task, float(r["test"]))) for r in own if r["task"] == task]
        for task, words in CELLS.items()
    }
    return ", ".join(f"{words} {min(low):.3f}" for words, low in lows.items() if low)


BODY_NAMES = {
    "swimmer": ("Swimmer-v5", "linear, float"),
    "swimmer-int8": ("Swimmer-v5", "linear, INT8 weights"),
    "hopper": ("Hopper-v5", "linear, float"),
    "gym:HalfCheetah-v5": ("HalfCheetah-v5", "16 ReLU units"),
}


def bodies() -> str:
    """MuJoCo: the return of every seed."""
    runs = [r for r in load(BODIES).records if "test" in r] if BODIES.exists() else []
    lines = []
    for task, (body, policy) in BODY_NAMES.items():
        mine = [r for r in runs if r["task"] == task]
        if mine:
            returns = [float(r["test"]) for r in mine]
            millions = fmean(r["interactions"] for r in mine) / 1e6
            each = ", ".join(f"{value:,.0f}" for value in returns)
            lines.append([body, policy, f"{fmean(returns):,.0f}", each, f"{millions:.2f}"])
    head = ["body", "policy", "return, mean", "each seed", "million interactions"]
    return markdown_table(head, lines)


def throughput() -> str:
    """Interactions per second of one core."""
    rows = [json.loads(line) for line in THROUGHPUT.read_text().splitlines()]
    names = ["steps per second of processor time", "gymnasium", "stable-baselines3"]
    lines = [[row["environment"], *(f"{row[name]:,.0f}" for name in names)] for row in rows]
    head = ["environment", "compiled", "gymnasium, no policy", "stable-baselines3, PPO's policy"]
    return markdown_table(head, lines)
