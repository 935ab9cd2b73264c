"""The tables of README.md that come from records."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from benchmarks.pages.costs import WITH_GRADIENTS
from benchmarks.pages.printed import find_table, parse
from benchmarks.runs import digits_defaults
from hardstep._pages import markdown_table
from hardstep.bench.axes import AXES
from hardstep.bench.report.overview import MARKS, overviews
from hardstep.bench.summary import Row, Summary, Table

NONE = "–"
TASKS = digits_defaults.TASKS
NAMES = {
    "snn": "spiking network",
    "mlp": "ReLU network",
    "int8": "INT8 weights",
    "staircase": "staircase activations",
    "argmax": "argmax attention",
    "moe": "hard mixture of experts",
}
PUBLISHED_AS = {
    "openai-es": "OpenAI-ES",
    "cma-es": "CMA-ES",
    "eggroll": "EGGROLL",
    "mezo": "MeZO",
    "spsa": "SPSA",
    "random": "random search",
}
PAPER = {  # its tables
    "snn": "tab:snn-accuracy",
    "mlp": "tab:mnist-accuracy",
    "int8": "tab:int8-accuracy",
    "staircase": "tab:staircase-accuracy",
    "argmax": "tab:argmax-accuracy",
    "moe": "tab:moe-accuracy",
}


def tables(summary: Summary) -> dict[str, str]:
    """Every table by its name."""
    return {
        "headline": headline(summary),
        "defaults": digits_defaults.table(),
        "digits": digits(summary),
        "tally": tally(summary),
        "paper": paper(summary),
        "paper, equal steps": baselines(summary, "steps"),
        "paper, equal time": baselines(summary, "time"),
    }


def read_paper(task: str) -> tuple[float, str]:
    """The paper's test accuracy in percent, and its millions of evaluations."""
    table = find_table(PAPER[task])
    return parse(table["rows"][0]["printed"], seeds=5).mean, f"{table['millions']:.1f}"


def headline(summary: Summary) -> str:
    """At the paper's size and steps: PolyStep, the paper, the best baseline, Adam, the cost."""
    head = ["network", "**PolyStep**", "paper", "best baseline", "Adam", "CPU minutes"]
    lines = []
    for task in PAPER:
        accuracy, _ = read_paper(task)
        table = _only(summary, task, "mnist", "steps")
        ours = table.row("polystep")
        assert ours is not None
        best = next((r for r in table.rows if r.against and r.method != WITH_GRADIENTS), None)
        adam = table.row(WITH_GRADIENTS)
        lines.append([
            NAMES[task], f"**{_plain(ours)}**", f"{accuracy}",
            f"{_plain(best)} ({PUBLISHED_AS[best.method]})" if best else NONE, _plain(adam),
            f"{(ours.cost('cpu_seconds') or 0.0) / 60:.0f}",
        ])  # fmt: skip
    return markdown_table(head, lines)


def _plain(row: Row | None) -> str:
    """A mean without marks."""
    return NONE if row is None else f"{(row.mean('test') or (0.0, 0.0))[0]:.1f}"


def digits(summary: Summary) -> str:
    """PolyStep, the best method without gradients and Adam, at three things equal."""
    head = ["task"]
    for axis in list(AXES.values())[:3]:  # digits play no simulator
        head += [
            f"equal {axis.title.removeprefix('wall-clock ')}: **PolyStep**",
            "best baseline",
            "Adam",
        ]
    lines = []
    for task in TASKS:
        line = [f"`{task}`"]
        for axis in list(AXES)[:3]:
            line += _three(_only(summary, task, "digits", axis))
        lines.append(line)
    return markdown_table(head, lines)


def _three(table: Table) -> list[str]:
    """The rows are best first, so the first baseline is the best one."""
    baseline = next(row for row in table.rows if row.against and row.method != WITH_GRADIENTS)
    adam = table.row(WITH_GRADIENTS)
    ours = f"**{_score(table.row('polystep'))}**"
    return [ours, f"{_score(baseline)} {baseline.method}", _score(adam)]


def tally(summary: Summary) -> str:
    """Wins, ties and losses on digits, baselines apart from Adam."""
    lines = []
    for name, axis in list(AXES.items())[:3]:
        mine = [t for t in summary.tables if t.data == "digits" and t.budget.axis == name]
        rows = [row for table in mine for row in table.rows if row.against]
        without = [row for row in rows if row.method != WITH_GRADIENTS]
        adam = [row for row in rows if row.method == WITH_GRADIENTS]
        lines.append([axis.title, _counts(without), _counts(adam)])
    return markdown_table(
        ["at equal", "against six methods without gradients", "against Adam"], lines
    )


def _counts(rows: Iterable[Row]) -> str:
    found = Counter(row.against.verdict for row in rows if row.against)
    return f"{found['win']} / {found['tie']} / {found['loss']}"


def paper(summary: Summary) -> str:
    """PolyStep at the paper's steps beside the paper's own figures."""
    head = ["task", "test accuracy, %", "the paper's", "seeds", "steps", "evaluations",
            "the paper's", "CPU minutes"]  # fmt: skip
    lines = []
    for task in PAPER:
        accuracy, evaluations = read_paper(task)
        row = _only(summary, task, "mnist", "steps").row("polystep")
        assert row is not None
        mean, spread = row.mean("test") or (0.0, 0.0)
        costs = {name: row.cost(name) or 0.0 for name in ("steps", "evaluations", "cpu_seconds")}
        lines.append([
            f"`{task}`", f"**{mean:.1f} ± {spread:.1f}**", f"{accuracy}", f"{len(row.seeds)}",
            f"{costs['steps']:,.0f}", f"{costs['evaluations'] / 1e6:.1f} M", f"{evaluations} M",
            f"{costs['cpu_seconds'] / 60:.0f}",
        ])  # fmt: skip
    return markdown_table(head, lines)


def baselines(summary: Summary, axis: str) -> str:
    """All methods at the paper's size, where any baseline has been run."""
    (found,) = (overview for overview in overviews(summary) if overview.axis == axis)
    mine = tuple(table for table in found.tables if table.data == "mnist")
    methods = [m for m in found.methods if any(t.row(m) for t in mine)]
    shown = replace(found, tables=mine, methods=tuple(methods))
    head = ["task", *("**PolyStep**" if m == "polystep" else m for m in methods)]
    lines = []
    for table, (_, cells) in zip(mine, shown.lines(), strict=True):
        ours, *theirs = (cell.text for cell in cells[1:])
        lines.append([f"`{table.task}`", f"**{ours}**", *theirs])
    return markdown_table(head, lines)


def _only(summary: Summary, task: str, data: str, axis: str) -> Table:
    place = (task, data, axis)
    (table,) = (t for t in summary.tables if (t.task, t.data, t.budget.axis) == place)
    return table


def _score(row: Row | None) -> str:
    mean = None if row is None else row.mean("test")
    if row is None or mean is None:
        return NONE
    mark = MARKS[row.against.verdict] if row.against else ""
    return f"{mark}{mean[0]:.1f}"
