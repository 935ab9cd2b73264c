"""When a run ends: so many epochs, steps or seconds, whichever is used up first."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hardstep._checks import check_count, is_number
from hardstep.errors import ConfigError
from hardstep.training.batches import num_batches
from hardstep.training.run import Run


@dataclass(frozen=True)
class Limits:
    """What `fit` was told, checked."""

    epochs: int | None
    steps: int | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None and self.seconds is None:
            raise ConfigError("fit needs a limit: give epochs, steps or seconds")
        for name in ("epochs", "steps"):
            if getattr(self, name) is not None:
                check_count(f"fit: {name}", getattr(self, name))
        if self.seconds is None:
            return
        if not is_number(self.seconds) or not 0 < self.seconds < math.inf:
            raise ConfigError(
                f"fit: seconds must be a number > 0 and finite, got {self.seconds!r}; leave it out "
                "for no limit of time"
            )

    def reached(self, run: Run) -> bool:
        """Whether one of them is used up."""
        return (
            (self.epochs is not None and run.epoch >= self.epochs)
            or (self.steps is not None and run.step >= self.steps)
            or (self.seconds is not None and run.seconds >= self.seconds)
        )

    def total_steps(self, train: Iterable[Any]) -> int:
        """Steps the run will take if nothing stops it, 0 if that is not known."""
        known = [self.steps] if self.steps is not None else []
        num = num_batches(train)
        if self.epochs is not None and num is not None:
            known.append(self.epochs * num)
        return min(known) if known else 0
