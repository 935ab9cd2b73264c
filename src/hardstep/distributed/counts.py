"""What happened among workers, counted: for the progress line and the record."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Counts:
    """Of a run, or since the last step."""

    tiles: int = 0  # answered
    retries: int = 0  # tiles that raised or whose worker was lost, and were handed out again
    duplicates: int = 0  # tiles that were handed out twice since the first was slow
    dropped: int = 0  # answers that came late, twice or for another step
    confirmed: int = 0  # tiles with a loss that was not finite, evaluated again
    lost: int = 0  # workers, as far as the engine tells
    needs: int = 0  # times a worker had to be sent the model, data or weights
    drifted: int = 0  # of these, after a move that did not lead to the driver's weights
    failed: int = 0  # tiles given up after all tries; their losses count as not finite
    left_out: int = 0  # tiles that a step did without, since a quorum had answered
    bytes_sent: int = 0
    bytes_received: int = 0
    busy: float = 0.0  # seconds that workers evaluated
    available: float = 0.0  # seconds that they could have
    reason: str = ""  # of the last retry
    quorum: float = 1.0  # the share of a step's candidates that suffices
    names: set[str] = field(default_factory=set)  # of workers that answered

    @property
    def waiting(self) -> float:
        """The share of their time that workers waited."""
        return max(0.0, 1 - self.busy / self.available) if self.available else 0.0

    def as_record(self, workers: int) -> dict[str, Any]:
        """For a file of results."""
        known = {name: value for name, value in asdict(self).items() if name != "names"}
        del known["busy"], known["available"]
        seen = len(self.names)
        exact = self.quorum == 1
        told = {"workers": workers, "workers_seen": seen, "exact": exact}
        return {**told, **known, "waiting": self.waiting}

    def format(self, workers: int, flying: int) -> str:
        """A few words for a progress bar."""
        said = [_count(workers, "worker")]
        said += [f"{_count(flying, 'tile')} in flight"] if flying else []
        said += [_count(self.retries, "retry", "retries")] if self.retries else []
        said += [f"{self.lost} lost"] if self.lost else []
        if self.quorum < 1:
            said.append(f"inexact: {_count(self.left_out, 'tile')} left out")
        return ", ".join([*said, f"waiting {self.waiting:.0%}"])


def _count(num: int, word: str, several: str = "") -> str:
    return f"{num:,} {word if num == 1 else several or f'{word}s'}"
