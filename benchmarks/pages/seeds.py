"""Cells of a table that names every seed of a row."""

from collections.abc import Sequence

from hardstep.bench.summary import Row


def list_cells(row: Row, parts: Sequence[str], digits: int) -> list[str]:
    """Seeds, the score of each on some parts of the data, and what a run cost."""
    scores = [", ".join(f"{score:.{digits}f}" for score in row.scores(part)) for part in parts]
    steps, evaluations = (row.cost(name) or 0.0 for name in ("steps", "evaluations"))
    minutes = (row.cost("cpu_seconds") or 0.0) / 60
    seeds = ", ".join(map(str, row.seeds))
    return [seeds, *scores, f"{steps:,.0f}", f"{evaluations:,.0f}", f"{minutes:.0f}"]
