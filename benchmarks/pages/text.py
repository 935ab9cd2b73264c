"""Transformers from scratch on SST-2, from records: PolyStep alone, in several variants."""

from pathlib import Path

from benchmarks.pages.seeds import list_cells
from hardstep._pages import markdown_table
from hardstep.bench.records import load
from hardstep.bench.summary import summarize

RECORDS = Path(__file__).parents[1] / "results" / "text.jsonl"
PRINTED = 49.4  # the paper's, seed 42


def table() -> str:
    """Accuracy of every seed, and what a run cost; the paper's printed figure below."""
    head = ["task", "seeds", "test accuracy, %", "validation, %", "steps", "evaluations",
            "CPU minutes"]  # fmt: skip
    loaded = load(RECORDS)
    summary = summarize(loaded.records, skipped=loaded.skipped) if loaded.records else None
    rows = [(found.task, found.row("polystep")) for found in summary.tables] if summary else []
    lines = [
        [f"`{task}`", *list_cells(row, ("test", "valid"), 1)]
        for task, row in rows
        if row is not None
    ]
    return markdown_table(head, [*lines, ["the paper's run", "42", f"{PRINTED}", *["–"] * 4]])
