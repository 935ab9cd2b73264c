"""Forecasts of ETTh1, from records, beside persistence and what the paper prints."""

from pathlib import Path

from hardstep._pages import markdown_table
from hardstep.bench.records import load
from hardstep.bench.summary import Row, summarize

RECORDS = Path(__file__).parents[1] / "results" / "etth1.jsonl"
PRINTED = {  # validation and test error
    "persistence: the last value again": ("0.1375", "0.0687"),
    "`etth1`, PolyStep, printed in the paper": ("0.109", "0.253"),
    "`etth1`, EGGROLL, printed in the paper": ("0.118", "0.240"),
}
METHODS = {"polystep": "PolyStep", "adam": "Adam", "eggroll": "EGGROLL", "openai-es": "OpenAI-ES"}


def table() -> str:
    """Mean squared errors of every seed, and what a run cost."""
    head = ["", "seeds", "validation error", "test error", "steps", "evaluations", "CPU minutes"]
    loaded = load(RECORDS)
    summary = summarize(loaded.records, skipped=loaded.skipped)
    lines = [
        [f"`{found.task}`, {name}", *_numbers(row)]
        for found in summary.tables
        for method, name in METHODS.items()
        if (row := found.row(method)) is not None
    ]
    printed = [[name, "–", *errors, "–", "–", "–"] for name, errors in PRINTED.items()]
    return markdown_table(head, [*lines, *printed])


def _numbers(row: Row) -> list[str]:
    valid, test = (", ".join(f"{s:.3f}" for s in row.scores(part)) for part in ("valid", "test"))
    steps, evaluations = (row.cost(name) or 0.0 for name in ("steps", "evaluations"))
    minutes = (row.cost("cpu_seconds") or 0.0) / 60
    seeds = ", ".join(map(str, row.seeds))
    return [seeds, valid, test, f"{steps:,.0f}", f"{evaluations:,.0f}", f"{minutes:.0f}"]
