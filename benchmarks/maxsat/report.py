"""From records to the tables of docs/lab/maxsat.md, between markers."""

import math
import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks.maxsat.plan import Spec
from hardstep._pages import markdown_table

WHO = ("method", "variables", "instance", "file", "threads", "seconds", "variant", "seed")
ELSEWHERE = "paper"  # the suite that docs/lab/paper.md shows
BEGIN, END = "<!-- bench-maxsat:begin -->", "<!-- bench-maxsat:end -->"


def line(record: Spec) -> str:
    """One record in one line, for the terminal."""
    where = record.get("file") or f"{record['variables']:,} variables"
    where += f", {record['variant']}" if "variant" in record else ""
    found = (
        "nothing proven" if record["falsified"] is None else f"{record['falsified']:,} falsified"
    )
    share = f", {100 * record['share']:.3f} %" if "share" in record else ""
    spent = f", {record['search_seconds']:.1f} s" if "search_seconds" in record else ""
    return f"{record['method']}: {where}: {found}{share}{spent}"


def write(records: list[Spec], page: Path) -> None:
    """Renew what stands between the markers."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{text(records)}\n{END}{rest.split(END)[1]}")
    print(f"wrote {page}")


def text(records: list[Spec]) -> str:
    """All tables, and where they come from."""
    records = [record for record in records if record["suite"] != ELSEWHERE]
    makers = (_evaluations, _time, _lifts, _solvers, _scaling, _files, _origin)
    return "\n\n".join(filter(None, (make(records) for make in makers)))


def _grouped(records: list[Spec], suite: str, *names: str) -> dict[tuple, list[Spec]]:
    """The newest record of each instance, by the given fields."""
    newest = {}
    for record in records:
        if record["suite"] == suite:
            newest[tuple(record.get(name) for name in WHO)] = record
    groups = defaultdict(list)
    for record in newest.values():
        groups[tuple(record.get(name) for name in names)].append(record)
    return dict(sorted(groups.items(), key=lambda item: str(item[0])))


def _percent(found: list[Spec]) -> str:
    shares = [100 * record["share"] for record in found]
    spread = f" ± {statistics.stdev(shares):.3f}" if len(shares) > 1 else ""
    return f"{statistics.mean(shares):.3f}{spread}"


def _mean(found: list[Spec], name: str) -> float:
    return statistics.mean(record[name] for record in found if name in record)


def _evaluations(records: list[Spec]) -> str:
    """Share of clauses satisfied per size and method, at the same number of evaluations."""
    rows = [
        [f"{variables:,}", method, _percent(found), str(len(found)),
         f"{_mean(found, 'evaluations_spent'):,.0f}", f"{_mean(found, 'search_seconds'):.1f}"]
        for (variables, method), found in _by_size(records, "evaluations", "variables", "method")
    ]  # fmt: skip
    head = ["variables", "method", "clauses satisfied, %", "instances", "evaluations", "seconds"]
    return _section("At equal evaluations", head, rows)


def _time(records: list[Spec]) -> str:
    """The same at the same wall-clock time."""
    rows = []
    groups = _by_size(records, "time", "variables", "seconds", "method")
    for (variables, seconds, method), found in groups:
        steps = f"{_mean(found, 'steps'):,.0f}" if "steps" in found[0] else "–"
        flips = f"{_mean(found, 'flips'):.3g}" if "flips" in found[0] else "–"
        memory = max(record["peak_bytes"] for record in found) / 1e6
        rows.append([f"{variables:,}", f"{seconds:g}", method, _percent(found), str(len(found)),
                     steps, flips, f"{memory:,.0f}"])  # fmt: skip
    head = ["variables", "seconds", "method", "clauses satisfied, %", "instances", "steps", "flips",
            "peak memory, MB"]  # fmt: skip
    return _section("At equal time, two cores", head, rows)


def _by_size(records: list[Spec], suite: str, *names: str) -> list[tuple[tuple, list[Spec]]]:
    groups = _grouped(records, suite, *names)
    return sorted(groups.items(), key=lambda item: (*item[0][:-1], -_share(item[1])))


def _share(found: list[Spec]) -> float:
    return statistics.mean(record["share"] for record in found)


def _section(title: str, head: list[str], rows: list[list[str]]) -> str:
    return f"### {title}\n\n{markdown_table(head, rows)}" if rows else ""


def _lifts(records: list[Spec]) -> str:
    groups = _grouped(records, "lifts", "variant")
    ordered = sorted(groups.items(), key=lambda item: -_share(item[1]))
    rows = [
        [variant, _percent(found), str(len(found)), f"{_mean(found, 'evaluations_spent'):,.0f}"]
        for (variant,), found in ordered
    ]
    head = ["preset", "clauses satisfied, %", "instances", "evaluations"]
    return _section("What lifts it, at 20,000 variables and 400 steps", head, rows)


def _solvers(records: list[Spec]) -> str:
    rows = [
        [f"{variables:,}", method, _percent(found), f"{_mean(found, 'seconds_per_step'):.4f}",
         f"{found[0]['steps']:,}"]
        for (variables, method), found in _by_size(records, "solvers", "variables", "method")
    ]  # fmt: skip
    head = ["variables", "method", "clauses satisfied, %", "seconds per step", "steps"]
    return _section("Softmax, Sinkhorn, theory mode", head, rows)


def _scaling(records: list[Spec]) -> str:
    groups = _grouped(records, "scaling", "threads", "variables")
    if not groups:
        return ""
    rows, points = [], defaultdict(list)
    for (threads, variables), found in sorted(groups.items()):
        seconds = _mean(found, "seconds_per_step")
        points[threads].append((variables, seconds))
        own = _mean(found, "peak_bytes") - _mean(found, "bytes_before")
        rows.append([f"{variables:,}", str(threads), f"{seconds:.4f}",
                     f"{own / found[0]['clauses']:.0f}",
                     f"{_mean(found, 'peak_bytes') / 1e6:,.0f}"])  # fmt: skip
    fits = ", ".join(
        f"{_slope(known):.2f} on {threads} core{'s' if threads > 1 else ''}"
        for threads, known in sorted(points.items())
        if len(known) > 1
    )
    head = ["variables", "cores", "seconds per step", "bytes per clause above start",
            "peak memory, MB"]  # fmt: skip
    text = "### How a step grows\n\n" + markdown_table(head, rows)
    return f"{text}\n\nSeconds per step ~ variables^exponent, exponent {fits}."


def _slope(points: list[tuple[int, float]]) -> float:
    across, up = zip(*((math.log(v), math.log(s)) for v, s in points), strict=True)
    middle, height = statistics.mean(across), statistics.mean(up)
    products = sum((a - middle) * (u - height) for a, u in zip(across, up, strict=True))
    return products / sum((a - middle) ** 2 for a in across)


def _files(records: list[Spec]) -> str:
    groups = _grouped(records, "files", "file", "method")
    if not groups:
        return ""
    methods = sorted({method for _, method in groups})
    rows = []
    for file in sorted({file for file, _ in groups}):
        cells = [groups.get((file, method)) for method in methods]
        rows.append([f"`{file}`", *("–" if not c else _cost(c[0]) for c in cells)])
    return "### Files: clauses falsified\n\n" + markdown_table(["file", *methods], rows)


def _cost(record: Spec) -> str:
    if record["falsified"] is None:
        return f"not proven in {record['seconds']:g} s"
    return f"{record['falsified']:,}" + (" (optimal)" if record.get("proven") else "")


def _origin(records: list[Spec]) -> str:
    if not records:
        return "Nothing is recorded yet."
    newest = max(records, key=lambda record: record["date"])
    return (
        f"Recorded until {newest['date'][:10]} in `benchmarks/results/maxsat.jsonl.gz` by "
        f"`make bench-maxsat` from `benchmarks/suites/maxsat.toml`; {newest['cores']} cores"
        f"{' of ' + newest['machine'] if 'machine' in newest else ''}; "
        f"python {newest['python']}, hardstep {newest['hardstep']}, torch {newest['torch']}, "
        f"numba {newest['numba']}."
    )
