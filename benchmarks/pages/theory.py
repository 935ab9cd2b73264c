"""Run every theory check at full size and renew docs/lab/theory.md and its figures.

    python -m benchmarks.pages.theory             run (minutes), draw, write
    python -m benchmarks.pages.theory --trained   run the protocols on trained networks instead
    python -m benchmarks.pages.theory --report    rebuild the page from the recorded runs

The run is recorded in benchmarks/results/theory.json, which has every number of every check; the
page shows at most three of them per cell.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hardstep._files import provenance
from hardstep._pages import Markup, markdown_table
from hardstep.theory import Setup, judge, load_checks
from hardstep.theory.figures import FIGURES
from hardstep.theory.report import COLUMNS, GROUPS, SHOWN, format_line

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "theory.json"
PAGE, PICTURES = ROOT / "docs" / "lab" / "theory.md", ROOT / "docs" / "lab" / "theory"
COMMAND = "python -m benchmarks.pages.theory"
BEGIN, END = "<!-- theory:begin -->", "<!-- theory:end -->"
CAPTIONS = {
    "blow-up": "Smoothed over a ball of radius h, a loss that jumps has a gradient of order 1/h "
    "and a curvature of order 1/h²; without a jump (gray) both are one order lower.",
    "kernels": "Next to a unit step: the gradient that the step follows (tail kernel), and the "
    "gradient of the loss averaged over probes (probe law). One probe per vertex, jitter up to "
    "one half; δ is the probes' mean distance.",
    "remainders": "What the softmax adds to its linear part is cubic in the probe radius, on the "
    "simplex only on average. A jump of the Hessian at the base point leaves it so; a jump of "
    "the loss does not.",
    "occupancy": "A descent that crosses walls 2L apart spends δ/L of its path within δ of one. "
    "A path that swings across a single wall stays near it at every δ.",
    "drift": "Saturated steps drift inward at every condition number: by 0.78 step lengths on a "
    "round bowl, by about a quarter on narrow ones.",
    "excursion": "Left: without drift a run strays as √t; with drift it stays within a step of "
    "the minimum, or follows the radius down. Right: how far it strays, against the closed form.",
    "violation": "The columns' violation never rises with the penalty and ends as λ⁻².",
    "ghost": "Left: with a penalty a particle on a plateau follows the column potentials of the "
    "others. Right: uniform rotations average that step out, a law with a first moment does not.",
    "flat-pairs": "Antithetic pairs of probes of quantized weights return the same loss until one "
    "weight changes its level; the radius at which it does depends on where in their bins the "
    "weights are.",
}
Row = dict[str, Any]  # a check as `Outcome.as_dict` gives it


def record(trained: bool) -> dict[str, Any]:
    """The checks of one kind at full size; those of the other stay as they were recorded."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {"checks": []}
    wanted = [check for check in load_checks() if (check.kind == "P") == trained]
    names = {check.id for check in wanted}
    rows = [row for row in known["checks"] if row["id"] not in names]
    for check in wanted:
        outcome = judge(check, Setup(quick=False))
        print(format_line(outcome), flush=True)
        rows.append(outcome.as_dict())
    rows.sort(key=lambda row: (row["id"][0], int(re.findall(r"\d+", row["id"])[0]), row["id"]))
    source = provenance() | {"command": f"{COMMAND} --trained" if trained else COMMAND}
    return known | {"checks": rows} | ({"trained": source} if trained else source)


def draw(folder: Path) -> None:
    """All figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        figure.draw(folder / f"{name}.png")


def renew(page: Path, recorded: dict[str, Any]) -> None:
    """Replace what is between the markers."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{text(recorded)}\n{END}{after}")


def text(recorded: dict[str, Any]) -> str:
    """The summary, a section per group, and where all of it comes from."""
    groups: dict[str, list[Row]] = {}
    for row in recorded["checks"]:
        groups.setdefault(row["id"][0], []).append(row)
    sections = [part for letter in sorted(groups) for part in _section(letter, groups[letter])]
    summary = f"{_summary(recorded['checks'])}. A cell shows at most {SHOWN} numbers of a check."
    return "\n\n".join(["## Results", summary, *sections, _origin(recorded)])


def _section(letter: str, rows: Iterable[Row]) -> list[str]:
    rows = list(rows)
    table = markdown_table(COLUMNS, [_cells(row) for row in rows])
    parts = [f"### {letter}: {GROUPS[letter]}", table]
    notes = [f"- **{row['id']}**: {row['note']}" for row in rows if row["note"]]
    if notes:
        parts.append("\n".join(notes))
    for name, figure in FIGURES.items():
        if figure.group == letter:
            alternative = (figure.draw.__doc__ or name).splitlines()[0].rstrip(".")
            parts += [f"![{alternative}]({PICTURES.name}/{name}.png)", CAPTIONS[name]]
    return parts


def _cells(row: Row) -> list[str]:
    names, paper = _shown(row), row["paper_value"]
    agrees = "agrees" if row["paper_agrees"] else "**differs**"
    return [
        row["id"],
        row["title"],
        _numbers(row["measured"], names),
        _numbers(row["expected"], names),
        f"{row['tol']:.2g}",
        "pass" if row["verdict"] == "pass" else "**fail**",
        "fails" if _controls_fail(row) else "**passes**",
        Markup(_numbers(paper, names) + (f"<br>{agrees}" if paper else "")),
        f"{row['seconds']:.1f}",
    ]


def _shown(row: Row) -> list[str]:
    """The names a table shows: those the paper prints first, then those with an expected value."""

    def rank(name: str) -> tuple[bool, bool]:
        return name not in row["paper_value"], name not in row["expected"]

    first = sorted(row["measured"], key=rank)[:SHOWN]
    return [name for name in row["measured"] if name in first]


def _numbers(values: dict[str, float], names: list[str]) -> Markup:
    """Those of the given names, one per line, and how many others there are."""
    shown = [f"{name}: {values[name] + 0.0:.4g}" for name in names if name in values]
    rest = len(values) - len(shown)
    return Markup("<br>".join([*shown, f"and {rest} more"] if rest else shown) or "–")


def _controls_fail(row: Row) -> bool:
    return all(verdict == "fail" for verdict in row["control_verdict"].values())


def _sound(row: Row) -> bool:
    return row["verdict"] == "pass" and _controls_fail(row)


def _summary(rows: list[Row]) -> str:
    """What the whole run says, in one sentence."""
    passed = sum(row["verdict"] == "pass" for row in rows)
    controls = [verdict for row in rows for verdict in row["control_verdict"].values()]
    printed = [row["paper_agrees"] for row in rows if row["paper_agrees"] is not None]
    return (
        f"{passed} of {len(rows)} checks pass, {controls.count('fail')} of {len(controls)} "
        f"controls fail as they must, {sum(map(_sound, rows))} checks are sound; {sum(printed)} "
        f"of {len(printed)} agree with the paper's printed figures; "
        f"{sum(row['seconds'] for row in rows):.0f} CPU-seconds"
    )


def _origin(recorded: dict[str, Any]) -> str:
    sources = [recorded, *([recorded["trained"]] if "trained" in recorded else [])]
    return "\n\n".join(
        f"`{source['command']}`, {source['date'][:10]}; hardstep {source['hardstep']}, "
        f"PyTorch {source['torch']}, Python {source['python']}; {source['machine']}"
        for source in sources
    )


def main() -> int:
    """Run and draw unless only the page is asked for; 0 if every check is sound."""
    if "--report" not in sys.argv:
        RECORD.write_text(json.dumps(record("--trained" in sys.argv), indent=1) + "\n")
        draw(PICTURES)
    recorded = json.loads(RECORD.read_text())
    renew(PAGE, recorded)
    print(_summary(recorded["checks"]))
    return 0 if all(map(_sound, recorded["checks"])) else 1


if __name__ == "__main__":
    sys.exit(main())
