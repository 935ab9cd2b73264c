"""Renew docs/lab/results.md and paper.md, and the marked parts of README.md and other pages.

    python -m benchmarks.pages.results

All of it comes from records. Suites come through `hardstep report`; the theory ladder has a
protocol and a table of its own.
"""

from pathlib import Path

from benchmarks.pages import (
    costs,
    edges,
    forecasts,
    fuzz,
    heads,
    marked,
    paper,
    pictures,
    policies,
    readme,
    scarce,
    text,
    workers,
)
from benchmarks.runs import ladder, smollm2_logits, spiking_libraries, tutorial
from hardstep.bench.records import load
from hardstep.bench.report import render_markdown
from hardstep.bench.summary import summarize

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SUITES = ("digits", "paper", "ablations", "mnist-warm")
PAGE = ROOT / "docs" / "lab" / "results.md"
MARKED = (
    ROOT / "README.md",
    ROOT / "docs" / "lab" / "comparing.md",
    ROOT / "docs" / "lab" / "forecasts.md",
    ROOT / "docs" / "lab" / "fuzz.md",
    ROOT / "docs" / "lab" / "gallery.md",
    ROOT / "docs" / "lab" / "heads.md",
    ROOT / "docs" / "lab" / "pictures.md",
    ROOT / "docs" / "lab" / "policies.md",
    ROOT / "docs" / "lab" / "spiking-libraries.md",
    ROOT / "docs" / "lab" / "text.md",
    ROOT / "docs" / "lab" / "workers.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "how-to" / "compare.md",
    ROOT / "docs" / "how-to" / "diagnose.md",
    ROOT / "docs" / "how-to" / "own-task.md",
)
LADDER = """## The theory ladder

The spiking network with the paper's settings: hypotheses of the convergence theorem switched on
from the tuned run, and off from theory mode, one at a time; Δ against the head of its block
(`python -m benchmarks.runs.ladder`, [theory.md](theory.md))."""
ELSEWHERE = """## Elsewhere

Time of a step: [performance.md](performance.md). MAX-SAT: [maxsat.md](maxsat.md). Checks of the
theory: [theory.md](theory.md). `hardstep train` at its defaults: [gallery.md](gallery.md)."""


def pages() -> dict[Path, str]:
    """What the pages should say."""
    records, skipped = [], []
    for name in SUITES:
        loaded = load(RESULTS / f"{name}.jsonl")
        records += loaded.records
        skipped += loaded.skipped
    summary = summarize(records, skipped=skipped)
    parts = [render_markdown(summary), LADDER]
    for data in sorted(ladder.SEEDS):
        parts.append(f"### {data}, {ladder.STEPS[data]:,} steps\n\n{ladder.table(data)}")
    made = readme.tables(summary) | costs.figures(summary) | scarce.figures(summary)
    made |= {"costs": costs.table(summary), "edges": edges.table(summary)}
    made |= {"scarce": scarce.table(summary), "fuzz": fuzz.table()} | tutorial.parts()
    made |= {"pictures": pictures.table(), "text": text.table()}
    made["forecasts"] = forecasts.table()
    made |= {"heads smollm2": heads.table(), "smollm2 logits": smollm2_logits.table()}
    made |= {"policies": policies.table(), "policies worst": policies.worst()}
    made |= {"policies bodies": policies.bodies(), "policies throughput": policies.throughput()}
    made |= spiking_libraries.tables() | workers.tables()
    pages = {path: marked.renew(path.read_text(), made) for path in MARKED}
    return {PAGE: "\n\n".join([*parts, ELSEWHERE]) + "\n", paper.PAGE: paper.text(), **pages}


def main() -> None:
    """Write them."""
    for page, content in pages().items():
        page.write_text(content)
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
