"""docs/lab/paper.md: what the paper prints, and beside it what our records say.

Printed figures, and which records stand beside each, are in printed.toml.
"""

import json
import math
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.pages import printed
from benchmarks.pages.policies import clip, normalize
from benchmarks.pages.printed import Figure
from hardstep._pages import Markup, markdown_table
from hardstep.bench.records import Record, find_fault, read_lines

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "lab" / "paper.md"
NONE = "–"
LEFT_OUT = ("digits", "digits-defaults", "digits-tuning", "mnist-tuning", "transport")  # of *
INHERITED = ("files", "seeds", "steps", "field", "scale", "digits", "style", "judged")
PAIR = ("first", "second")  # of a claim
HEAD = """# Beside the paper

Every table of the paper that we have records for: the printed figure, ours, and the difference.
A difference in **bold** is more than twice its standard error, of the printed seeds and ours, and
more than the last digit printed. Where a figure has no spread, nothing is in bold. {none} is not
recorded here, or not printed.

*The paper's settings* are those of its table of hyperparameters, in its subspace. *Our settings*
are the presets that `hardstep train` uses. Where a run was shorter than the paper's, its steps are
given.

The page is made by `python -m benchmarks.pages.results` from `benchmarks/pages/printed.toml` and
`benchmarks/results/`; every record has its command, versions, machine and date."""
CLAIMS = """## Where they disagree

What the paper says of two of its figures, and whether ours say the same: the first minus the
second. It *holds* if our difference has the printed sign and at least half of its size, *in part*
if it is smaller. Where the printed difference is within twice its own standard error, ours has to
be, too. Differences of protocol are named in the notes of the tables."""


@dataclass(frozen=True)
class Line:
    """A row of a table: its printed figure, and ours at one number of steps."""

    name: str
    shown: str  # the name, and our steps if they are not the printed ones
    text: str  # as printed; empty if it is not
    ours: Figure | None
    setting: Mapping[str, Any]

    @property
    def printed(self) -> Figure | None:
        """The printed figure as numbers."""
        return printed.parse(self.text, self.setting["seeds"]) if self.text else None

    @property
    def measured(self) -> str:
        """Our mean and spread with the digits of the table."""
        if self.ours is None:
            return NONE
        style = f".{self.setting['digits']}{self.setting['style']}"
        spread = "" if self.ours.spread is None else f" ± {self.ours.spread:{style}}"
        return f"{self.ours.mean:{style}}{spread}"

    @property
    def difference(self) -> str:
        """Ours minus the printed one, in bold if it is larger than chance and rounding."""
        if self.printed is None or self.ours is None or not self.setting["judged"]:
            return NONE
        gap = self.ours.mean - self.printed.mean
        text = f"{gap:+.{self.setting['digits']}f}"
        error = standard_error(self.printed, self.ours)
        rounding = 10.0 ** -printed.digits_of(self.text)
        apart = error is not None and abs(gap) > max(2 * error, rounding)
        return f"**{text}**" if apart else text


def standard_error(first: Figure, second: Figure) -> float | None:
    """Of a difference; none if either spread is not known."""
    if first.variance is None or second.variance is None:
        return None
    return math.sqrt(first.variance + second.variance)


# -- records ----------------------------------------------------------------------------------


@cache
def read(stem: str) -> tuple[Record, ...]:
    """The records of a file of results: reported runs, or a benchmark's, which have no schema."""
    found = [json.loads(line) for _, line in read_lines(RESULTS / f"{stem}.jsonl")]
    return tuple(r for r in found if "schema" not in r or not (find_fault(r) or r.get("stage")))


def find_stems(patterns: list[str]) -> list[str]:
    """The files of results that are meant."""
    names = {path.name.partition(".")[0] for path in RESULTS.glob("*.jsonl*")}
    wanted = {name for pattern in patterns for name in names if Path(name).match(pattern)}
    return sorted(wanted - set(LEFT_OUT) if patterns == ["*"] else wanted)


def look_up(record: Record, path: str) -> Any:
    """A field, with dots inside objects; empty if there is none."""
    value: Any = record
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def matches(record: Record, where: Mapping[str, Any]) -> bool:
    """Whether a record is one of those that are meant."""
    return all(_fits(look_up(record, path), wanted) for path, wanted in where.items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return all(_fits(value, part) for part in wanted)
    if isinstance(wanted, str) and wanted.startswith("~"):
        return wanted[1:] in str(value)
    return bool(value == wanted)


def measure(record: Record, field: str) -> float | None:
    """What a record says of a figure."""
    if field.startswith("mark "):  # clauses that hold after so many steps
        falsified = record["marks"].get(field.removeprefix("mark "))
        return None if falsified is None else 1 - falsified / record["clauses"]
    if field.startswith("curve "):
        return _look_at(record["curve"], int(field.removeprefix("curve ")))
    if field == "proven share":
        return 1 - record["falsified"] / record["clauses"] if record["proven"] else None
    if field == "normalized return":
        return normalize(record["task"], float(record["test"])) if "test" in record else None
    value = record.get(field)
    return float(value) if isinstance(value, int | float) else None


def _look_at(curve: Mapping[str, list[Any]], step: int) -> float | None:
    """The validation nearest to a step, if it is within a tenth of it."""
    place = min(range(len(curve["steps"])), key=lambda at: abs(curve["steps"][at] - step))
    near = abs(curve["steps"][place] - step) <= step / 10
    return curve["value"][place] if near else None


def collect(setting: Mapping[str, Any], where: Mapping[str, Any]) -> dict[int, Figure]:
    """Our figures by the number of steps, the largest first; the newest record of a seed counts."""
    by_steps: dict[int, dict[tuple[Any, Any], float]] = defaultdict(dict)
    for stem in find_stems(setting["files"]):
        for record in read(stem):
            if matches(record, where):
                value = measure(record, setting["field"])
                if value is not None:
                    steps = int(record.get("steps") or 0) if setting["steps"] else 0
                    run = record.get("seed"), record.get("instance")
                    by_steps[steps][run] = setting["scale"] * value
    found = {}
    for steps, by_seed in sorted(by_steps.items(), reverse=True):
        values = list(by_seed.values())
        mean, spread = fmean(values), stdev(values) if len(values) > 1 else None
        if setting["field"] == "normalized return":  # clipped as on the page of policies
            mean, spread = clip(mean), stdev(map(clip, values)) if len(values) > 1 else None
        found[steps] = Figure(mean, spread, len(values))
    return found


# -- tables -----------------------------------------------------------------------------------

DEFAULTS = {
    "files": ["*"], "seeds": 5, "steps": 0, "field": "test", "scale": 100, "digits": 1,
    "style": "f", "judged": True,
}  # fmt: skip


def lines_of(table: Mapping[str, Any]) -> Iterator[Line]:
    """Every row, once for every number of steps that we have of it."""
    for row in table["rows"]:
        setting = {**DEFAULTS, **_inherited(table), **_inherited(row)}
        where = {**table.get("where", {}), **row.get("where", {})}
        found = collect(setting, where)
        for steps, ours in (found or {setting["steps"]: None}).items():
            is_other = steps != setting["steps"]
            rest = f", {steps:,} of {setting['steps']:,} steps" if is_other else ""
            yield Line(row["name"], row["name"] + rest, row.get("printed", ""), ours, setting)


def _inherited(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in INHERITED if name in given}


def section(table: Mapping[str, Any]) -> str:
    """A heading, a note and the table."""
    rows = [
        [line.shown, line.text or NONE, line.measured, Markup(line.difference),
         str(line.ours.seeds) if line.ours else NONE]
        for line in lines_of(table)
    ]  # fmt: skip
    head = ["", "printed", "ours", "difference", "seeds of ours"]
    note = f"`{table['label']}`. {table.get('note', '')}"
    wrapped = textwrap.fill(" ".join(note.split()), 100, break_on_hyphens=False)
    return f"### {table['title']}\n\n{wrapped}\n\n{markdown_table(head, rows)}"


def claims(source: printed.Table) -> str:
    """What the paper says of two figures, and what ours say."""
    lines = {
        (table["label"], line.name): line
        for table in source["table"]
        for line in reversed(list(lines_of(table)))  # of several numbers of steps, the largest
    }
    rows = [
        [claim["text"], *_compare(*(lines[tuple(claim[name])] for name in PAIR), claim)]
        for claim in source["claim"]
    ]
    notes = [f"- {claim['text']}: {claim['note']}" for claim in source["claim"] if "note" in claim]
    table = markdown_table(["the paper says", "printed", "ours", "with ours it"], rows)
    return "\n\n".join([CLAIMS, table, *notes])


def _compare(first: Line, second: Line, claim: Mapping[str, Any]) -> list[str]:
    assert first.printed is not None
    assert second.printed is not None
    digits = first.setting["digits"]
    said = first.printed.mean - second.printed.mean
    if first.ours is None or second.ours is None:
        return [f"{said:+.{digits}f}", NONE, NONE]
    found = first.ours.mean - second.ours.mean
    error = standard_error(first.printed, second.printed) or 0.0
    level = claim.get("level", abs(said) <= 2 * error)
    near = abs(found) <= 2 * (standard_error(first.ours, second.ours) or 0.0)
    if level:
        verdict = "holds" if near else "**does not hold**"
    elif found * said <= 0:
        verdict = "**does not hold**"
    else:
        verdict = "holds" if abs(found) >= abs(said) / 2 else "holds in part"
    return [f"{said:+.{digits}f}", f"{found:+.{digits}f}", Markup(verdict)]


def text() -> str:
    """The page."""
    source = printed.read()
    sections = [section(table) for table in source["table"]]
    return "\n\n".join([HEAD.format(none=NONE), claims(source), "## Tables", *sections]) + "\n"


def main() -> None:
    """Write it."""
    PAGE.write_text(text())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
