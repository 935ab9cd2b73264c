"""From records to what a reader sees: a table and exponents between markers, and a chart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.step.page import PAGE, describe_pictures, describe_range, renew, seconds, times
from benchmarks.step.records import Record, latest
from benchmarks.step.rows import ROWS
from benchmarks.step.runs import DISTURBED
from hardstep._pages import markdown_table

BEGIN, END = "<!-- bench-step:begin -->", "<!-- bench-step:end -->"
BATCH = 512  # what the table is for; trials with other batches are not shown
CHART = "performance.png"
OURS, INK = "#2a6f97", "#1b1b1b"
COLUMNS = (
    "step",
    "probes",
    "published",
    "ours",
    "ratio, wall",
    "ratio, CPU",
    "ours, batched",
    "outside evaluation",
    "of the limit",
    "first step, cold / cached",
)


def write(records: list[Record], docs: Path) -> None:
    """Renew the table in the page and the chart beside it; without records leave both alone."""
    found = _shown(records)
    if not found:
        print(f"nothing is recorded yet at batch {BATCH}")
        return
    if compared := _compared(found):
        draw(compared, docs / CHART)
    renew(docs / PAGE, (BEGIN, END), text(records))


def text(records: list[Record]) -> str:
    """What stands between the markers."""
    found = _shown(records)
    full = [record for record in records if record["batch"] == BATCH]
    chart = bool(_compared(found))
    return "\n\n".join([*_sections(found, chart), *_others(full), _origin(found)])


def _shown(records: list[Record]) -> list[Record]:
    """The newest record of every row, in the order of the table."""
    steps = latest([record for record in records if record["batch"] == BATCH], "step")
    return [steps[row.name, ""] for row in ROWS if (row.name, "") in steps]


def _compared(found: list[Record]) -> list[Record]:
    return [record for record in found if record["theirs"]]


def line(record: Record) -> str:
    """One record in one line, for the terminal."""
    if record["kind"] == "scaling":
        fitted = ", ".join(f"{name} {value:.2f}" for name, value in record["exponents"].items())
        return f"{record['row']}: exponents over {record['axis']}: {fitted}"
    if record["kind"] == "written":
        return _written(record)
    if record["kind"] == "profile":
        return f"{record['row']}: {', '.join(f'{n} {seconds(v)}' for n, v in _parts(record))}"
    ours = record["ours"]
    text = f"{record['row']}: ours {seconds(ours['median']['wall'])}"
    if record["theirs"]:
        ratio = record["ratio"]
        text += f", published {seconds(record['theirs']['median']['wall'])}"
        text += f", {times(ratio['wall'])} wall, {times(ratio['cpu'])} CPU"
    text += f", outside evaluation {ours['outside_evaluation']:.0%}"
    if record["foreign_cores"] > DISTURBED:
        text += f"; DISTURBED, others used {record['foreign_cores']:.1f} cores"
    return text


def _written(record: Record) -> str:
    hand, layers = (record[name]["median"]["cpu"] for name in ("by_hand", "from_layers"))
    return (
        f"the recurrence of `{record['row']}` written by hand takes {seconds(hand)} of CPU time "
        f"per step, the same network built from `hardstep.nn` {seconds(layers)}: "
        f"{record['speed']['cpu']:.0%} of its speed"
    )


def _sections(found: list[Record], chart: bool) -> list[str]:
    sections = [_table(found)]
    if chart:
        sections.insert(0, f"![ratio of the published step to ours, per row]({CHART})")
    notes = [*filter(None, map(_note, found)), *_disturbances(found)]
    return [*sections, " ".join(notes)] if notes else sections


def _others(records: list[Record]) -> Iterator[str]:
    """What was measured beside the steps."""
    scalings = list(latest(records, "scaling").values())
    if scalings:
        yield _exponents(scalings)
    profiles = list(latest(records, "profile").values())
    if profiles:
        yield _profiles(profiles)
    for record in latest(records, "written").values():
        yield f"{line(record)[:1].upper()}{line(record)[1:]}."
    if compared := list(latest(records, "against").values()):
        yield _against(compared)


def _against(compared: list[Record]) -> str:
    """Each row beside an older commit, measured in one run."""
    lines = [
        [
            record["title"],
            f"`{record['revision'][:10]}`",
            *(seconds(record[side]["median"]["wall"]) for side in ("older", "ours")),
            *(f"{record['speed'][clock]:.2f}" for clock in ("wall", "cpu")),
        ]
        for record in compared
    ]
    columns = ["beside an older commit", "commit", "older", "ours", "older ÷ ours, wall", "CPU"]
    return markdown_table(columns, lines)


def _table(found: list[Record]) -> str:
    return markdown_table(COLUMNS, [_cells(record) for record in found])


def _cells(record: Record) -> list[str]:
    ours, theirs = record["ours"], record["theirs"]
    ratio = record.get("ratio", {})
    first = [_first(ours.get(name)) for name in ("first_step", "first_step_cached")]
    return [
        record["title"],
        f"{ours['probes']:,}",
        seconds(theirs["median"]["wall"]) if theirs else "–",
        seconds(ours["median"]["wall"]),
        f"**{times(ratio['wall'])}**" if ratio else "–",
        times(ratio["cpu"]) if ratio else "–",
        f"{seconds(record['batched']['wall'])} ({times(record['batched']['ratio']['wall'])})",
        f"{ours['outside_evaluation']:.0%}",
        f"{record['limit']['reached']:.0%}",
        " / ".join(first),
    ]


def _first(step: Record | None) -> str:
    return "–" if step is None else f"+{max(0.0, step['over_median']):.1f} s"


def _note(record: Record) -> str:
    """What was timed in part, in words."""
    parts = []
    step = record["theirs"]["steps"][0] if record["theirs"] else {}
    if step.get("share", 1.0) < 1:
        parts.append(f"the published step was timed on {step['share']:.0%} of its probes")
    if record["batched"]["share"] < 1:
        parts.append(f"our batched one on {record['batched']['share']:.0%}")
    return f"{record['title']}: {' and '.join(parts)}, scaled up." if parts else ""


def _disturbances(found: list[Record]) -> list[str]:
    """A warning, where one is due."""
    disturbed = [
        f"{record['title']} ({record['foreign_cores']:.1f} cores)"
        for record in found
        if record["foreign_cores"] > DISTURBED
    ]
    if not disturbed:
        return []
    return [f"**Disturbed by other processes, not to be relied on:** {'; '.join(disturbed)}."]


def _exponents(scalings: list[Record]) -> str:
    lines = []
    for record in scalings:
        cpu, wall = (record["exponents"][f"evaluation_{clock}"] for clock in ("cpu", "wall"))
        sizes = ", ".join(f"{point['value']:,.0f}" for point in record["points"])
        what = f"`{record['row']}` over {record['axis']}"
        lines.append([what, f"{cpu:.2f}", f"{wall:.2f}", sizes])
    return markdown_table(["exponent of our evaluation", "CPU", "wall", "sizes"], lines)


def _parts(record: Record) -> list[tuple[str, float]]:
    return list(record["parts"].items())


def _profiles(profiles: list[Record]) -> str:
    names = [name for name, _ in _parts(profiles[0])]
    lines = []
    for record in profiles:
        total = sum(record["parts"].values())
        shares = [f"{value / total:.0%}" for _, value in _parts(record)]
        lines.append([record["title"], *shares])
    return markdown_table(["where a step's time goes", *names], lines)


def _origin(found: list[Record]) -> str:
    newest = max(found, key=lambda record: record["date"])
    machine, versions = newest["machine"], newest["ours"]["versions"]
    theirs = newest["theirs"]["versions"] if newest["theirs"] else {}
    listed = ", ".join(f"{name} {value}" for name, value in {**versions, **theirs}.items())
    repeats = " or ".join(sorted({str(record["repeats"]) for record in found}))
    limits = [record["limit"] for record in found]
    return (
        f"Recorded {newest['date'][:10]} in `benchmarks/results/bench-step.jsonl.gz` by "
        f"`make bench-step`; {machine['processor']}, {machine['threads']} threads on "
        f"{machine['cores']} cores, {describe_range(limits)} GFLOP/s and "
        f"{describe_range(limits, 'peak_bytes')} GB/s measured, row by row; "
        f"batch {newest['batch']}, repeats {repeats}; {describe_pictures(found)}; "
        f"the newest row: {listed}."
    )


def draw(compared: list[Record], path: Path) -> None:
    """Bars of the wall-clock ratio."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.5 * len(compared) + 1.6), layout="constrained")
    for place, record in enumerate(compared):
        _bar(axes, place, record)
    axes.set_yticks(range(len(compared)), [record["title"] for record in compared])
    axes.invert_yaxis()
    axes.set_xscale("log")
    highest = max(r["ratio"]["wall"] for r in compared)
    lowest = min(1.0, *(r["ratio"]["wall"] for r in compared))
    axes.set_xlim(0.8 * lowest, 2.5 * highest)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_title("One optimizer step: published time ÷ ours", loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _bar(axes: Any, place: int, record: Record) -> None:
    ratio = record["ratio"]["wall"]
    axes.barh(place, ratio - 1, left=1, height=0.55, color=OURS)
    axes.text(ratio * 1.12, place, times(ratio), va="center", fontweight="bold", color=OURS)
