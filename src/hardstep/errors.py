"""Every error hardstep raises on purpose, and every warning.

All errors are `HardstepError`, all warnings `HardstepWarning`: Python's `warnings.filterwarnings`
turns them off, or into errors.
"""

import sys
import warnings


class HardstepError(Exception):
    """Base of all errors raised by hardstep."""


class ConfigError(HardstepError, ValueError):
    """A setting is out of range, unknown, or contradicts another one."""


class ObjectiveError(HardstepError, ValueError):
    """A loss function, closure or batched function returned something unusable."""


class CapacityError(HardstepError, MemoryError):
    """A projection or table would not fit in memory; the message names an alternative."""


class CheckpointError(HardstepError, RuntimeError):
    """A checkpoint is missing, damaged, or belongs to a different configuration."""


class DataError(HardstepError, RuntimeError):
    """A data set is missing, damaged, or used against its protocol."""


class NonFiniteLossError(HardstepError, ArithmeticError):
    """Losses were NaN or infinite and the policy is `raise`."""

    def __init__(self, count: int, first: tuple[int, ...]) -> None:
        super().__init__(
            f"{count} losses were not finite, the first at (particle, vertex, probe) = {first}; "
            "use nonfinite='worst' to rank such probes last and continue"
        )
        self.count = count
        self.first = first

    def __reduce__(self) -> tuple[type["NonFiniteLossError"], tuple[int, tuple[int, ...]]]:
        return type(self), (self.count, self.first)  # so that a worker process can send it


class WorkerError(HardstepError, RuntimeError):
    """Workers are gone, do not answer, or are not what the run needs.

    `told_by_all` marks what every rank of a run finds out alike, so that one of them tells it.
    """

    def __init__(self, message: str, told_by_all: bool = False) -> None:
        super().__init__(message)
        self.told_by_all = told_by_all


class HardstepWarning(UserWarning):
    """Base of all warnings given by hardstep."""


class DeadRowsWarning(HardstepWarning):
    """Most probes make no difference to the loss, so that most particles do not move."""


class StillLossWarning(HardstepWarning):
    """The loss does not fall, though probes make a difference."""


class SlowLossWarning(HardstepWarning):
    """Losses are computed one by one because of how the loss or the model is written."""


def warn(category: type[Warning], text: str) -> None:
    """Warn, naming the line of the user's that called hardstep."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hardstep."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level + 1)
