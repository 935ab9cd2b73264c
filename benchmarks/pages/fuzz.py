"""What a long run of `make fuzz` counted, as a table with its circumstances."""

import json
from pathlib import Path
from typing import Any

from hardstep._pages import markdown_table

RECORD = Path(__file__).parents[1] / "results" / "fuzz.json"
COLUMNS = ("inputs", "refused", "accepted", "findings")


def table() -> str:
    """Counts by target, and how they were made."""
    recorded: dict[str, Any] = json.loads(RECORD.read_text())
    rows = {**recorded["targets"], "all": recorded["total"]}
    lines = [[name, *(f"{row[column]:,.0f}" for column in COLUMNS)] for name, row in rows.items()]
    seconds = recorded["total"]["seconds"]
    made = f"Seed {recorded['seed']}, {seconds / 60:.0f} minutes of one process; "
    made += f"{recorded['machine']}, Python {recorded['python']}, torch {recorded['torch']}, "
    made += f"commit {recorded['commit']}, {recorded['date'][:10]}."
    return f"{markdown_table(['target', *COLUMNS], lines)}\n\n{made}"
