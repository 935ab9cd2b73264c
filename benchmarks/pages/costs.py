"""What an evaluation costs every method on digits, from records: a table, and words for sentences.

CPU seconds of a run over its evaluations: making candidates, their losses, the step, validation.
"""

from collections.abc import Callable, Iterable
from statistics import mean

from hardstep._pages import markdown_table
from hardstep.bench.summary import Row, Summary, Table

POPULATIONS = ("openai-es", "cma-es", "eggroll", "random")  # evaluated in batches
PAIRS = ("mezo", "spsa")  # two candidates a step
WITH_GRADIENTS = "adam"


def table(summary: Summary) -> str:
    """Microseconds of CPU time per evaluation, by task and kind of method."""
    head = ["task", "PolyStep", "member of a population", "MeZO, SPSA", "Adam, with its gradient"]
    lines = []
    for found in _compared(summary, "time"):
        methods = (("polystep",), POPULATIONS, PAIRS, (WITH_GRADIENTS,))
        costs = [[1e6 * _each(row) for row in _of(found, names)] for names in methods]
        lines.append([f"`{found.task}`", *(_range(some, _two_digits) for some in costs)])
    return markdown_table(head, lines)


def figures(summary: Summary) -> dict[str, str]:
    """By the names README gives them."""
    evals, time = (_compared(summary, axis) for axis in ("evals", "time"))
    baselines = POPULATIONS + PAIRS
    totals = [_total(row) for found in evals for row in _of(found, ("polystep",))]
    return {
        "seconds of PolyStep": f"{_range(totals, '{:.0f}'.format)} s",
        "seconds of others": _range(_against(evals, baselines, _total), _two_digits),
        "evaluation of others": _range(_against(time, POPULATIONS, _each), _two_digits),
        "EGGROLL ahead": f"{max(_ahead(found, 'eggroll') for found in time):.1f}",
    }


def _compared(summary: Summary, axis: str) -> list[Table]:
    return [t for t in summary.tables if t.data == "digits" and t.budget.axis == axis]


def _of(table: Table, methods: Iterable[str]) -> list[Row]:
    found = map(table.row, methods)
    return [row for row in found if row is not None]


def _against(
    tables: Iterable[Table], methods: Iterable[str], cost: Callable[[Row], float]
) -> list[float]:
    """How many times PolyStep's cost the others' is, task by task."""
    return [
        cost(row) / cost(ours)
        for table in tables
        for ours in _of(table, ("polystep",))
        for row in _of(table, methods)
    ]


def _total(row: Row) -> float:
    return row.cost("cpu_seconds") or 0.0


def _each(row: Row) -> float:
    return _total(row) / (row.cost("evaluations") or 1.0)


def _ahead(table: Table, method: str) -> float:
    """Points of the test mean over PolyStep's."""
    ours, theirs = (_of(table, (name,))[0].scores("test") for name in ("polystep", method))
    return mean(theirs) - mean(ours)


def _two_digits(value: float) -> str:
    """Of significance, no exponents."""
    return f"{float(f'{value:.2g}'):,g}"


def _range(values: Iterable[float], shown: Callable[[float], str]) -> str:
    """From the least to the largest."""
    ends = [shown(end) for end in (min(values), max(values))] if (values := list(values)) else ["–"]
    return " to ".join(dict.fromkeys(ends))
