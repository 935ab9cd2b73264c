"""What a policy's outputs mean: which action they choose.

    Discrete       the largest of n outputs; the first of equal ones
    MultiDiscrete  several such choices, side by side
    Continuous     numbers, clipped to the bounds or squashed between them by tanh

`choose` takes outputs (B, outputs) in float64 and returns actions as environments take them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardstep._checks import check_count
from hardstep.errors import ConfigError

Array = NDArray[Any]


@dataclass(frozen=True)
class Discrete:
    """One of `num` actions."""

    num: int

    def __post_init__(self) -> None:
        check_count("Discrete: num", self.num)

    @property
    def outputs(self) -> int:
        """Numbers that a policy gives."""
        return self.num

    def choose(self, outputs: Array) -> Array:
        """The place of the largest output, (B,)."""
        best: Array = np.argmax(outputs, axis=-1)
        return best


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, each among as many actions as `nums` says."""

    nums: tuple[int, ...]

    def __post_init__(self) -> None:
        for num in self.nums:
            check_count("MultiDiscrete: nums", num)

    @property
    def outputs(self) -> int:
        """Numbers that a policy gives."""
        return sum(self.nums)

    def choose(self, outputs: Array) -> Array:
        """The place of the largest output of every choice, (B, choices)."""
        parts = np.split(outputs, np.cumsum(self.nums)[:-1], axis=-1)
        return np.stack([np.argmax(part, axis=-1) for part in parts], axis=-1)


@dataclass(frozen=True)
class Continuous:
    """Numbers between bounds; the outputs are clipped, or squashed by tanh."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    squash: bool = False

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not all(
            low < high for low, high in zip(self.low, self.high, strict=False)
        ):
            raise ConfigError(
                f"Continuous: every low must be below its high, got {self.low} and {self.high}"
            )
        if self.squash and not np.isfinite([*self.low, *self.high]).all():
            raise ConfigError(
                f"Continuous: squash needs finite bounds, got {self.low} and {self.high}"
            )

    @property
    def outputs(self) -> int:
        """Numbers that a policy gives."""
        return len(self.low)

    def choose(self, outputs: Array) -> Array:
        """The action, (B, outputs), in float32 as environments have it."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        if self.squash:
            outputs = (low + high) / 2 + np.tanh(outputs) * (high - low) / 2
        return np.clip(outputs, low, high).astype(np.float32)


Space = Discrete | MultiDiscrete | Continuous
