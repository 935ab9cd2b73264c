"""Networks of convolutions on MNIST, from records: PolyStep, and Adam with gradients made up."""

from pathlib import Path

from hardstep._pages import markdown_table
from hardstep.bench.records import load
from hardstep.bench.summary import Row, summarize

RECORDS = Path(__file__).parents[1] / "results" / "pictures.jsonl"
TRAINS = {  # what each method does to which network
    "polystep": "PolyStep, the hard network",
    "adam-hard": "Adam, the hard network with surrogate gradients",
    "adam": "Adam, the smooth twin",
}


def table() -> str:
    """Test accuracy of every seed, and what a run cost."""
    head = [
        "task",
        "method",
        "test accuracy, %",
        "each seed",
        "steps",
        "evaluations",
        "CPU minutes",
    ]
    loaded = load(RECORDS)
    summary = summarize(loaded.records, skipped=loaded.skipped) if loaded.records else None
    lines = []
    for found in summary.tables if summary else ():
        for method, words in TRAINS.items():
            row = found.row(method)
            if row is not None:
                lines.append([f"`{found.task}`", words, *_numbers(row)])
    return markdown_table(head, lines)


def _numbers(row: Row) -> list[str]:
    mean, spread = row.mean("test") or (0.0, 0.0)
    each = ", ".join(f"{score:.1f}" for score in row.scores("test"))
    steps, evaluations = (row.cost(name) or 0.0 for name in ("steps", "evaluations"))
    minutes = (row.cost("cpu_seconds") or 0.0) / 60
    return [
        f"{mean:.1f} ± {spread:.1f}", each, f"{steps:,.0f}", f"{evaluations:,.0f}",
        f"{minutes:.1f}" if minutes < 10 else f"{minutes:.0f}",
    ]  # fmt: skip
