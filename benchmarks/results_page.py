"""Renew docs/results.md, and what README.md and docs/comparing.md say of records, from these.

    python benchmarks/results_page.py

Suites come through `hardstep report`; the theory ladder has a protocol and a table of its own.
"""

from pathlib import Path

import costs
import edges
import ladder
import marked
import readme_tables
import scarce

from hardstep.bench.records import load
from hardstep.bench.report import gather, render_markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SUITES = ("digits", "paper", "ablations", "mnist-warm")
PAGE = ROOT / "docs" / "results.md"
MARKED = (ROOT / "README.md", ROOT / "docs" / "comparing.md")
LADDER = """## The theory ladder

The spiking network with the paper's settings: hypotheses of the convergence theorem switched on
from the tuned run, and off from theory mode, one at a time; Δ against the head of its block
(`python benchmarks/ladder.py`, [theory.md](theory.md))."""
ELSEWHERE = """## Elsewhere

Time of a step: [performance.md](performance.md). MAX-SAT: [maxsat.md](maxsat.md). Checks of the
theory: [theory.md](theory.md). `hardstep train` at its defaults: [README](../README.md)."""


def pages() -> dict[Path, str]:
    """What the pages should say."""
    records, skipped = [], []
    for name in SUITES:
        loaded = load(RESULTS / f"{name}.jsonl")
        records += loaded.records
        skipped += loaded.skipped
    contents = gather(records, skipped=skipped)
    parts = [render_markdown(contents), LADDER]
    for data in sorted(ladder.SEEDS):
        parts.append(f"### {data}, {ladder.STEPS[data]:,} steps\n\n{ladder.table(data)}")
    made = readme_tables.tables(contents) | costs.figures(contents) | scarce.figures(contents)
    made |= {"costs": costs.table(contents), "edges": edges.table(contents)}
    made |= {"scarce": scarce.table(contents)}
    pages = {path: marked.renewed(path.read_text(), made) for path in MARKED}
    return {PAGE: "\n\n".join([*parts, ELSEWHERE]) + "\n", **pages}


def main() -> None:
    """Write them."""
    for page, text in pages().items():
        page.write_text(text)
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
