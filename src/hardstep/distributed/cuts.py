"""Where a step is cut, from what its parts took in the last one.

A message costs about as much as a small tile, and workers should end together. So each worker gets
a long range first, and what is left goes out in short ones to whoever is free.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hardstep.evaluation.sharing import cut_evenly

FIRST = 0.75  # of a worker's share, handed out at once
TOGETHER = 0.05  # seconds that are handed out at once, at most: what is lost with a worker


class Range(NamedTuple):
    """Candidates, and the seconds that they took."""

    start: int
    stop: int
    seconds: float


class Cuts:
    """The ranges of a step.

    Args:
        tiles: Per worker, in a step of which nothing is known.
    """

    def __init__(self, tiles: int) -> None:
        self._tiles = tiles
        self._known: dict[tuple[int, int], list[Range]] = {}  # of the last step, in order

    @property
    def most(self) -> int:
        """Ranges that the last step could have been handed out in; none, if there was none."""
        return max(map(len, self._known.values()), default=0)

    def plan(self, num: int, workers: int) -> list[tuple[int, int]]:
        """Ranges of `num` candidates in the order in which they are handed out."""
        shape = self._shape(num, workers)
        known = self._known.get(shape)
        if known is None:
            return list(cut_evenly(*shape))
        goal = min(TOGETHER, FIRST / workers * sum(one.seconds for one in known))
        joined: list[Range] = []
        for one in known:
            last = joined[-1] if joined else None
            if last and len(joined) <= workers and last.seconds + one.seconds <= goal:
                joined[-1] = Range(last.start, one.stop, last.seconds + one.seconds)
            else:
                joined.append(one)
        joined.sort(key=lambda one: -one.seconds)
        return [(one.start, one.stop) for one in joined]

    def note(self, num: int, workers: int, answered: Iterable[Range]) -> None:
        """What ranges took; where several were handed out as one, each has its part of it."""
        shape = self._shape(num, workers)
        before, known = self._known.get(shape, []), []
        for one in sorted(answered):
            parts = [part for part in before if one.start <= part.start < one.stop]
            total = sum(part.seconds for part in parts)
            if len(parts) > 1 and total and parts[0].start == one.start:
                scale = one.seconds / total
                known += [part._replace(seconds=part.seconds * scale) for part in parts]
            else:
                known.append(one)
        self._known = {shape: known} if known else {}

    def _shape(self, num: int, workers: int) -> tuple[int, int]:
        """Candidates, and ranges of them that are wanted; a single worker has none to wait for."""
        return num, self._tiles * workers if workers > 1 else max(1, self._tiles // 2)
