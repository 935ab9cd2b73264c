"""What is done when workers fail: how often, how long, and what a step may do without."""

from dataclasses import dataclass
from typing import Literal

from hardstep._checks import is_number
from hardstep.errors import ConfigError

Failed = Literal["raise", "nan"]


@dataclass(frozen=True)
class Patience:
    """What is done when workers fail.

    Args:
        tries: Times that a tile may raise, or be lost with its worker.
        straggling: A tile is handed out a second time after this multiple of the median.
        at_least: Seconds before it is.
        timeout: Seconds without any answer after which the run stops.
        failed: What becomes of a tile that raises every time: its exception is raised, or its
            losses count as NaN, which the optimizer's `nonfinite` decides about.
        quorum: The share of a step's candidates that suffices when the others are late: when they
            have been handed out twice, and both copies are slow. Particles with a loss that is
            missing do not move in that step. Below 1 a run depends on who is late, so it is
            recorded as inexact.

    Raises:
        ConfigError: The quorum is no share.
    """

    tries: int = 3
    straggling: float = 4.0
    at_least: float = 1.0
    timeout: float = 600.0
    failed: Failed = "raise"
    quorum: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.quorum) or not 0 < self.quorum <= 1:
            raise ConfigError(
                f"Patience: quorum must be a share above 0, at most 1, got {self.quorum!r}"
            )
