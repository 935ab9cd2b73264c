"""Outcomes of the suite as lines and as one page of HTML."""

from collections.abc import Mapping, Sequence

from hardstep._pages import Markup, element, html_page, join
from hardstep.theory.suite import Outcome

COLUMNS = ("id", "what", "measured", "expected", "tol", "verdict", "control", "paper", "seconds")
GROUPS = {
    "A": "Smoothing blows up at an attained jump",
    "B": "Sections under the projection",
    "C": "The annulus kernel, its score, and two kernels",
    "D": "The exact identity, the step constant, the remainder",
    "E": "Bias floor, occupancy, optimal radius",
    "F": "Goldstein inclusion and radius",
    "G": "Envelope, drift, excursion, confinement",
    "H": "The KL program, the freeze, the ghost drift",
    "I": "Jumps and flat pairs",
    "J": "Saturation",
    "K": "Returns",
    "L": "Hitting time and detectability",
}
SHOWN = 3  # numbers of a check in a table; the JSON has them all


def format_line(outcome: Outcome) -> str:
    """One check in one line, for the terminal."""
    verdict = "pass" if outcome.passed else "FAIL"
    control = "fails as it must" if all(outcome.controls_failed.values()) else "CONTROL PASSES"
    measured = _numbers(outcome.evidence.measured)
    return (
        f"{outcome.check.id:<7}{verdict:<6}{outcome.check.title:<64.64} {measured:<44.44} "
        f"control {control}  {outcome.seconds:5.1f} s"
    )


def summarize(outcomes: Sequence[Outcome]) -> str:
    """What the whole run says, in one sentence."""
    passed = sum(outcome.passed for outcome in outcomes)
    sound = sum(outcome.sound for outcome in outcomes)
    controls = sum(len(outcome.controls_failed) for outcome in outcomes)
    failing = sum(sum(outcome.controls_failed.values()) for outcome in outcomes)
    printed = [o.paper_agrees for o in outcomes if o.paper_agrees is not None]
    seconds = sum(outcome.seconds for outcome in outcomes)
    return (
        f"{passed} of {len(outcomes)} checks pass, {failing} of {controls} controls fail as they "
        f"must, {sound} checks are sound; {sum(printed)} of {len(printed)} agree with the paper's "
        f"printed figures; {seconds:.0f} CPU-seconds"
    )


def write_page(outcomes: Sequence[Outcome], command: str) -> str:
    """One self-contained page."""
    head = element("tr", *(element("th", column) for column in COLUMNS))
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.check.group, []).append(outcome)
    sections = [
        join(
            element("h2", f"{letter}: {GROUPS[letter]}"),
            element("table", head, *(_row(member) for member in members)),
        )
        for letter, members in sorted(groups.items())
    ]
    title = element("h1", "Theory checks")
    said = element("p", summarize(outcomes)), element("p", element("code", command))
    return html_page("hardstep theory", _STYLE, join(title, *said, *sections))


def _cells(outcome: Outcome) -> list[str]:
    evidence = outcome.evidence
    agrees = {None: "–", True: "agrees", False: "differs"}[outcome.paper_agrees]
    paper = f"{_numbers(evidence.paper)} ({agrees})" if evidence.paper else "–"
    return [
        outcome.check.id,
        outcome.check.title,
        _numbers(evidence.measured),
        _numbers(evidence.expected) or "–",
        f"{evidence.tol:g}",
        "pass" if outcome.passed else "fail",
        "fails" if all(outcome.controls_failed.values()) else "passes",
        paper,
        f"{outcome.seconds:.2f}",
    ]


def _row(outcome: Outcome) -> Markup:
    kind = "sound" if outcome.sound else "broken"
    cells = [element("td", cell) for cell in _cells(outcome)]
    row = element("tr", *cells, class_=kind)
    if not outcome.evidence.note:
        return row
    note = element("td", outcome.evidence.note, colspan=8)
    return join(row, element("tr", element("td"), note, class_="note"))


def _numbers(values: Mapping[str, float]) -> str:
    """The first few, and how many more there are."""
    shown = [f"{name} {value:.6g}" for name, value in list(values.items())[:SHOWN]]
    more = len(values) - SHOWN
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}"
    "td,th{text-align:left;padding:.3rem .5rem;border-bottom:1px solid #ddd;vertical-align:top}"
    "tr.broken td{background:#fbe3e4}tr.note td{color:#555;font-size:.9em}"
    "@media print{table{display:table}}"
)
