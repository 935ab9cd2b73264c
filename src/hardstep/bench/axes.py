"""What is equal in a comparison, and how much of it a run may spend.

Steps, evaluations or time; interactions with a simulator where the task has one.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hardstep._checks import check_name, check_positive
from hardstep.errors import ConfigError

if TYPE_CHECKING:  # records are read without torch
    from hardstep.tasks import Task


class Axis(NamedTuple):
    """One of the four."""

    field: str  # of records and of their curves
    title: str  # in tables and sentences
    usual: float | None  # budget unless one is given; none: the task's own steps
    is_counted: bool  # in whole numbers


AXES: Mapping[str, Axis] = {  # by their names on the command line, in suites and in records
    "steps": Axis("steps", "steps", None, is_counted=True),
    "evals": Axis("evaluations", "evaluations", 50_000.0, is_counted=True),
    "time": Axis("seconds", "wall-clock seconds", 20.0, is_counted=False),
    "interactions": Axis("interactions", "interactions", 1_000_000.0, is_counted=True),
}


PLAYED = "interactions"  # only runs that play a simulator have it


def axes_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Axis]:
    """The axes along which these runs can be shown; interactions only if one has counted them."""
    played = any(PLAYED in record["curve"] for record in records)
    return {name: axis for name, axis in AXES.items() if name != PLAYED or played}


@dataclass(frozen=True)
class Budget:
    """What a run may spend: steps, candidate evaluations, wall-clock seconds or interactions."""

    axis: str
    amount: float

    def __post_init__(self) -> None:
        if self.axis not in AXES or not 0 < self.amount < math.inf:
            raise ConfigError(
                f"a budget is so many steps, evals, time (seconds) or interactions, got "
                f"{self.amount} {self.axis!r}"
            )

    @property
    def title(self) -> str:
        """What is equal."""
        return AXES[self.axis].title

    @property
    def field(self) -> str:
        """Where records and curves have what was spent of it."""
        return AXES[self.axis].field

    def __str__(self) -> str:
        return f"{self.amount:,.12g} {self.title}"  # as it was given: 50,000, 0.4


def budget_of(task: "Task", axis: str, amount: float | None) -> Budget:
    """What was asked for; without an amount the task's steps, or what is usual on the axis.

    Raises:
        ConfigError: There is no such axis, or the amount is not a number > 0 and finite, or not
            whole where it is counted.
    """
    check_name(axis, AXES, "axis")
    _, title, usual, is_counted = AXES[axis]
    if amount is None:
        amount = task.steps if usual is None else usual
    check_positive(f"budget: {title}", amount)
    if is_counted and not float(amount).is_integer():
        raise ConfigError(f"budget: {title} are counted, so give a whole number, got {amount}")
    return Budget(axis, float(amount))
