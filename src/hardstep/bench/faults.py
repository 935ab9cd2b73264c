"""Why something is not a record of a run; what `load` skips by line and `append` refuses."""

import math
from typing import Any, Literal, get_args

SCHEMA = 1
AXES = ("steps", "evaluations", "seconds", "cpu_seconds")  # of a curve, beside its values
REQUIRED = ("task", "data", "method", "seed", "curve", "test_reads")
COUNTED = (*AXES, "peak_memory_bytes")  # of the whole run, where they were noted
Axis = Literal["steps", "evals", "time"]  # of a budget
BUDGETS = get_args(Axis)


def number(value: Any) -> float | None:
    """A finite number as it is, anything else as none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def fault(record: Any) -> str:
    """In one sentence; empty if it is a record of this version."""
    if not isinstance(record, dict):
        return f"a record is an object, this is a {type(record).__name__}"
    if record.get("schema") != SCHEMA:
        return f"schema {record.get('schema')!r}, this version reads {SCHEMA}"
    missing = [name for name in REQUIRED if name not in record]
    if missing:
        return f"{missing[0]} is missing"
    checks = (_of_names, _of_scores, _of_budget, _of_metric, _of_counts, _of_curve)
    return next(filter(None, (check(record) for check in checks)), "")


def _of_names(record: dict[str, Any]) -> str:
    for name in ("task", "data", "method"):
        if not isinstance(record[name], str):
            return f"{name} is not a name but {record[name]!r}"
    for name in ("study", "variant"):
        if not isinstance(record.get(name, ""), str):
            return f"{name} is not a name but {record[name]!r}"
    if isinstance(record["seed"], bool) or not isinstance(record["seed"], int):
        return f"its seed is not a whole number but {record['seed']!r}"
    if not isinstance(record.get("options") or {}, dict):
        return f"its options are not named: {record['options']!r}"
    return ""


def _of_scores(record: dict[str, Any]) -> str:
    """A score of the test set needs one reading of it, no more and no less."""
    reads = record["test_reads"]
    if isinstance(reads, bool) or reads not in (0, 1):
        return f"its test set was read {reads!r} times, so its score is not one"
    if reads != ("test" in record):
        return (
            f"its test set was read {reads} times, and it has "
            f"{'a' if 'test' in record else 'no'} test score"
        )
    if not record.keys() & {"test", "valid"}:
        return "it has neither a test nor a validation score"
    for name in ("test", "valid"):
        score = record.get(name)
        if score is not None and number(score) is None:
            return f"its {name} score is {score!r}, not a finite number"
    return ""


def _of_budget(record: dict[str, Any]) -> str:
    budget = record.get("budget")
    given = budget if isinstance(budget, dict) else {}
    axis, amount = given.get("axis"), number(given.get("amount"))
    if amount is None:
        return f"its budget is {budget!r}, so it is not known what was equal"
    if axis not in BUDGETS or amount <= 0:
        return f"a budget is so many {', '.join(BUDGETS)}, got {amount} {axis!r}"
    return ""


def _of_metric(record: dict[str, Any]) -> str:
    metric = record.get("metric")
    if metric is None or (isinstance(metric, dict) and isinstance(metric.get("name"), str)):
        return ""
    return f"its metric has no name: {metric!r}"


def _of_counts(record: dict[str, Any]) -> str:
    for name in COUNTED:
        if name in record and (number(record[name]) is None or record[name] < 0):
            return f"its {name} are {record[name]!r}, not a finite number"
    return ""


def _of_curve(record: dict[str, Any]) -> str:
    curve = record["curve"]
    if not isinstance(curve, dict) or "value" not in curve:
        return "its curve has no values"
    names = ("value", *AXES)
    odd = [name for name in names if not isinstance(curve.get(name, []), list)]
    if odd:
        return f"{odd[0]} of its curve is not a list"
    lengths = {name: len(curve.get(name, ())) for name in names}
    if len(set(lengths.values())) > 1:
        return f"the axes of its curve disagree: {lengths}"
    for name in AXES:
        numbers = curve[name]
        if not all(number(x) is not None for x in numbers):
            return f"{name} of its curve are not finite"
        if any(after < before for before, after in zip(numbers, numbers[1:], strict=False)):
            return f"{name} of its curve run backwards"
        if numbers and numbers[-1] > record.get(name, math.inf):
            return f"its curve ends at {numbers[-1]:g} {name}, the run at {record[name]:g}"
    return ""
