"""Budgets as people give and read them: what is usual if none is given, and how one is shown."""

from hardstep.bench.protocol import Budget
from hardstep.bench.summary import AXIS_NAMES
from hardstep.errors import ConfigError
from hardstep.names import check
from hardstep.rivals.checks import check_positive
from hardstep.tasks import Task

COUNTED = ("steps", "evals")
AMOUNTS = {"evals": 50_000.0, "time": 20.0}  # unless one is given; steps are the task's


def budget_of(task: Task, axis: str, amount: float | None) -> Budget:
    """What was asked for; without an amount the task's steps, or what is usual on the axis.

    Raises:
        ConfigError: There is no such axis, or the amount is not a number > 0 and finite, or not
            whole where it is counted.
    """
    check(axis, AXIS_NAMES, "axis")
    amount = AMOUNTS.get(axis, task.steps) if amount is None else amount
    check_positive("budget", AXIS_NAMES[axis], amount)
    if axis in COUNTED and not float(amount).is_integer():
        raise ConfigError(
            f"budget: {AXIS_NAMES[axis]} are counted, so give a whole number, got {amount}"
        )
    return Budget(axis, float(amount))  # type: ignore[arg-type]  # checked above


def shown_amount(amount: float) -> str:
    """As it was given: 50,000 evaluations, 0.4 seconds."""
    return f"{amount:,.12g}"
