"""Forecasts of ETTh1, from records, beside persistence and what the paper prints."""

from pathlib import Path

from benchmarks.pages.seeds import list_cells
from hardstep._pages import markdown_table
from hardstep.bench.records import load
from hardstep.bench.summary import summarize

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
        [f"`{found.task}`, {name}", *list_cells(row, ("valid", "test"), 3)]
        for found in summary.tables
        for method, name in METHODS.items()
        if (row := found.row(method)) is not None
    ]
    printed = [[name, "–", *errors, "–", "–", "–"] for name, errors in PRINTED.items()]
    return markdown_table(head, [*lines, *printed])
