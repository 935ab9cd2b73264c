"""The second table as a reader sees it: what a probe costs against a forward pass."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.step import network_chart
from benchmarks.step.network_rows import NETWORKS, RANK, TRAINED
from benchmarks.step.page import (
    PAGE,
    describe_pictures,
    describe_range,
    renew,
    seconds,
    show_figure,
    times,
)
from benchmarks.step.records import Record, latest
from benchmarks.step.runs import DISTURBED
from hardstep._pages import markdown_table

BEGIN, END = "<!-- bench-networks:begin -->", "<!-- bench-networks:end -->"
CHART = "networks.png"
NOTHING = "No row is recorded yet."
FIRST_SHARE, LEAST, SHARE = 1 / 10, 1.5, 1 / 3  # of a row's figure: its first convolution, others
MOST_OPERATIONS = 4.0  # forward passes that a probe may take; else their count lacks a layer
COLUMNS = (
    "network",
    "parameters",
    "probes",
    "one forward",
    "one probe",
    "forward ÷ probe",
    "must",
    "aim",
    "step",
    "batched",
    "published",
)
BLOCK_COLUMNS = (
    "network",
    "tensors",
    "tier",
    "probes",
    "one probe",
    "forward ÷ probe",
    "at least",
    "operations",
    "of the peak",
)


def write(records: list[Record], docs: Path) -> None:
    """Renew the tables in the page and the chart beside it; without records leave both alone."""
    found = _shown(records)
    if not found:
        print("no network is recorded yet")
        return
    network_chart.draw(found, docs / CHART)
    renew(docs / PAGE, (BEGIN, END), text(records))


def text(records: list[Record]) -> str:
    """What stands between the markers."""
    found = _shown(records)
    if not found:
        return NOTHING
    parts = [
        f"![forward ÷ probe of every network and of its tensors]({CHART})",
        markdown_table(COLUMNS, [_cells(record) for record in found]),
        " ".join(_notes(found)),
        markdown_table(BLOCK_COLUMNS, [cells for record in found for cells in _blocks(record)]),
        "\n".join(f"- {line}" for line in _reasons(found)),
        markdown_table(
            ["network", "activation", "units active", "values > 0", "at the end of the range"],
            [cells for record in found for cells in _active(record)],
        ),
        _origin(found),
    ]
    return "\n\n".join(filter(None, parts))


def _shown(records: list[Record]) -> list[Record]:
    """The newest record of every row, in the order of the table."""
    known = latest(records, "network")
    return [known[row.name, ""] for row in NETWORKS if (row.name, "") in known]


def line(record: Record) -> str:
    """One record in a few lines, for the terminal."""
    ours = record["ours"]
    title, parameters, probes, forward, probe, figure, *_, batched, published = _cells(record)
    first = (
        f"{record['row']} ({title}, {parameters} parameters): forward {forward}, {probes} probes "
        f"of {probe}, forward ÷ probe {figure} (CPU {times(ours['figure']['cpu'])}), "
        f"batched {batched}, published {published}"
    )
    blocks = [" | ".join(filter(None, cells[1:])) for cells in _blocks(record)]
    active = [" | ".join(["active", *cells[1:]]) for cells in _active(record)]
    return "\n  ".join([first, *blocks, *_reasons([record]), *active, *_notes([record])])


def _cells(record: Record) -> list[str]:
    ours, theirs, batched = record["ours"], record["theirs"], record["batched"]
    published = "–"
    if theirs and "ratio" in theirs:
        probes = f"{theirs['steps'][0]['probes']:,} probes"
        ratio = times(theirs["ratio"]["wall"])
        published = f"{seconds(theirs['median']['wall'])}, {probes} ({ratio})"
    return [
        record["title"],
        f"{ours['parameters']:,}",
        f"{ours['probes']:,}",
        _short(ours["forward"]["wall"]),
        _short(ours["median"]["wall"] / ours["probes"]),
        f"**{show_figure(ours['figure']['wall'])}**",
        *(f"{record[name]:g}" if record[name] else "–" for name in ("must", "aim")),
        seconds(ours["median"]["wall"]),
        f"{seconds(batched['wall'])} ({times(batched['ratio']['wall'])})",
        published,
    ]


def least(record: Record) -> dict[str, float]:
    """What the figure of each convolution has to reach, by the tensors of its block."""
    figure = record["ours"]["figure"]["wall"]
    convolutions = [
        name
        for name, block in record["explained"]["blocks"].items()
        if any(len(shape) > 2 and shape[0] > 1 for shape in block["shapes"])
    ]
    wanted = dict.fromkeys(convolutions, SHARE * figure)
    if convolutions:
        wanted[convolutions[0]] = max(LEAST, FIRST_SHARE * figure)
    return wanted


def _blocks(record: Record) -> Iterator[list[str]]:
    explained, wanted = record["explained"], least(record)
    most = max(block["operations"] for block in explained["blocks"].values())
    is_counted = most < MOST_OPERATIONS * explained["forward"]  # torch knows not all fused layers
    for number, (name, block) in enumerate(explained["blocks"].items()):
        known = "figure" in block
        reached = block["figure"]["wall"] if known else 0.0
        goal = wanted.get(name)
        missed = goal is not None and reached < goal
        yield [
            "" if number else record["title"],
            f"`{name}`",
            block["tier"],
            f"{block['probes']:,}",
            _short(block["wall"] / block["probes"]) if known else "–",
            show_figure(reached) if known else "–",
            "" if goal is None else f"{show_figure(goal)}{', missed' if missed else ''}",
            f"{block['operations'] / explained['forward']:.2%}" if is_counted else "–",
            f"{block['of_peak']:.1%}" if known else "–",
        ]


def _active(record: Record) -> Iterator[list[str]]:
    for number, (name, shares) in enumerate(record["ours"]["active"].items()):
        saturated = f"{shares['saturated']:.1%}" if "saturated" in shares else ""
        title = "" if number else record["title"]
        units, positive = (f"{shares[what]:.1%}" for what in ("units", "positive"))
        yield [title, f"`{name}`", units, positive, saturated]


def _notes(found: list[Record]) -> Iterator[str]:
    """What was timed in part, or not at all, in words."""
    for record in found:
        parts = []
        theirs, share = record["theirs"], record["batched"]["share"]
        if theirs and "refused" in theirs:
            yield f"{record['title']}: the published package ended with `{theirs['refused']}`."
        elif theirs:
            part = sum(step["share"] for step in theirs["steps"]) / len(theirs["steps"])
            if part < 1:
                parts.append(f"the published step was timed on {part:.1%} of its probes")
        if share < 1:
            parts.append(f"our batched one on {share:.0%}")
        if parts:
            yield f"{record['title']}: {' and '.join(parts)}, scaled up."
        if record["foreign_cores"] > DISTURBED:
            cores = f"{record['foreign_cores']:.1f} cores"
            yield f"**{record['title']}: disturbed by other processes ({cores}).**"


def _reasons(found: list[Record]) -> Iterator[str]:
    """Blocks that did not take a faster tier, and why."""
    for record in found:
        named: dict[str, list[str]] = {}
        for name, block in record["explained"]["blocks"].items():
            if block["reason"]:
                named.setdefault(f"{block['tier']}: {block['reason']}", []).append(f"`{name}`")
        for why, names in named.items():
            yield f"{record['title']}, {'; '.join(names)}: {why}"


def _origin(found: list[Record]) -> str:
    newest = max(found, key=lambda record: record["date"])
    machine = newest["machine"]
    theirs = (newest["theirs"] or {}).get("versions", {})
    listed = ", ".join(
        f"{name} {value}" for name, value in {**newest["ours"]["versions"], **theirs}.items()
    )
    repeats = " or ".join(sorted({str(record["repeats"]) for record in found}))
    return (
        f"Recorded {newest['date'][:10]} in `benchmarks/results/bench-networks.jsonl` by "
        f"`make bench-step`; {machine['processor']}, {machine['threads']} threads on "
        f"{machine['cores']} cores, {describe_range([r['peaks'] for r in found])} GFLOP/s "
        f"measured, row by row; `RowWise(rank={RANK})`, batch {newest['batch']}, weights after "
        f"{TRAINED} steps, repeats {repeats}; {describe_pictures(found)}; the newest row: {listed}."
    )


def _short(value: float) -> str:
    """A time of about a millisecond, with three digits."""
    return f"{1000 * value:.3g} ms" if value < 1 else seconds(value)
