"""Heads on a language model's features, from records: a line per method, a column per head."""

from pathlib import Path

from hardstep._pages import markdown_table
from hardstep.bench.records import load
from hardstep.bench.summary import Row, Summary, summarize

RECORDS = Path(__file__).parents[1] / "results" / "heads-smollm2.jsonl"
HEADS = {"head-smooth": "smooth", "head-int8": "INT8", "head-binary": "binary"}
METHODS = {
    "polystep": "PolyStep",
    "eggroll": "EGGROLL",
    "openai-es": "OpenAI-ES",
    "mezo": "MeZO",
    "adam": "Adam, the smooth copy",
    "adam-hard": "Adam, straight-through estimator",
}


def table() -> str:
    """Test accuracy, mean and spread over seeds, and what a run cost."""
    loaded = load(RECORDS)
    summary = summarize(loaded.records, skipped=loaded.skipped)
    lines = []
    for method, words in METHODS.items():
        rows = [_find(summary, task, method) for task in HEADS]
        if any(rows):
            lines.append([words, *map(_score, rows), _cost(rows)])
    return markdown_table(["method", *HEADS.values(), "CPU seconds"], lines)


def _find(summary: Summary, task: str, method: str) -> Row | None:
    found = [t.row(method) for t in summary.tables if t.task == task]
    return next((row for row in found if row is not None), None)


def _score(row: Row | None) -> str:
    if row is None or (scores := row.mean("test")) is None:
        return "–"
    mean, spread = scores
    return f"{mean:.1f} ± {spread:.1f}"


def _cost(rows: list[Row | None]) -> str:
    """Of the cheapest head and of the most expensive."""
    seconds = sorted((row.cost("cpu_seconds") or 0.0) for row in rows if row is not None)
    least, most = (
        f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in (seconds[0], seconds[-1])
    )
    return least if least == most else f"{least} to {most}"
