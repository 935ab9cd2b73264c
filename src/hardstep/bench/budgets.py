"""Budgets as people give and read them: what is usual if none is given, and how one is shown."""

from typing import Any

from hardstep import nn as hard
from hardstep._checks import check_name, check_positive
from hardstep.bench.methods import Plan, build
from hardstep.bench.protocol import Budget
from hardstep.bench.summary import AXIS_NAMES
from hardstep.errors import ConfigError
from hardstep.tasks import Task

COUNTED = ("steps", "evals")
AMOUNTS = {"evals": 50_000.0, "time": 20.0}  # unless one is given; steps are the task's


def budget_of(task: Task, axis: str, amount: float | None) -> Budget:
    """What was asked for; without an amount the task's steps, or what is usual on the axis.

    Raises:
        ConfigError: There is no such axis, or the amount is not a number > 0 and finite, or not
            whole where it is counted.
    """
    check_name(axis, AXIS_NAMES, "axis")
    amount = AMOUNTS.get(axis, task.steps) if amount is None else amount
    check_positive(f"budget: {AXIS_NAMES[axis]}", amount)
    if axis in COUNTED and not float(amount).is_integer():
        raise ConfigError(
            f"budget: {AXIS_NAMES[axis]} are counted, so give a whole number, got {amount}"
        )
    return Budget(axis, float(amount))  # type: ignore[arg-type]  # checked above


def usual_options(task: Task, method: str, budget: Budget) -> dict[str, Any]:
    """What a method begins with where nothing is tuned.

    At equal evaluations the price of a step is free. PolyStep's own may be so dear that a budget
    is over after a few of them; with fewer evaluations than its own steps would take, its units
    take turns instead (`presets.frugal`).
    """
    if method != "polystep" or budget.axis != "evals":
        return {}
    plan = Plan(task, hard.build(task.model, seed=0), task.steps, seed=0)
    own = task.steps * build(method, plan, {}).evaluations_per_step
    return {"preset": "frugal"} if budget.amount < own else {}


def shown_amount(amount: float) -> str:
    """As it was given: 50,000 evaluations, 0.4 seconds."""
    return f"{amount:,.12g}"
