"""What long runs of `make fuzz` counted, added up, with their circumstances."""

import json
from pathlib import Path
from typing import Any

from hardstep._pages import markdown_table

RECORDS = Path(__file__).parents[1] / "results"
COLUMNS = ("inputs", "refused", "accepted", "findings")


def table() -> str:
    """Counts by target, and how they were made."""
    runs: list[dict[str, Any]] = [
        json.loads(path.read_text()) for path in sorted(RECORDS.glob("fuzz*.json"))
    ]
    names = [*runs[0]["targets"], "all"]
    rows = [[name, *(f"{_total(runs, name, column):,.0f}" for column in COLUMNS)] for name in names]
    minutes = _total(runs, "all", "seconds") / 60
    seeds = " and ".join(str(run["seed"]) for run in runs)
    last = runs[-1]
    made = f"Seeds {seeds}, a process each, {minutes:.0f} minutes together; {last['machine']}, "
    made += f"Python {last['python']}, torch {last['torch']}, commit {last['commit']}, "
    made += f"{last['date'][:10]}."
    return f"{markdown_table(['target', *COLUMNS], rows)}\n\n{made}"


def _total(runs: list[dict[str, Any]], name: str, column: str) -> float:
    """A count over all runs; the row of all targets is called total in a record."""
    return sum((run["total"] if name == "all" else run["targets"][name])[column] for run in runs)
