"""What each rank takes of a step: ranges of candidates, evened out by what they took before.

All ranks plan from the same numbers, so that they agree without a message. Who takes what changes
no bit of a loss.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.distributed.cuts import Range
from hardstep.errors import WorkerError
from hardstep.evaluation.sharing import cut_evenly

FIRST = 16  # ranges of a rank in a step of which nothing is known; then those that hold a tile

Bounds = tuple[int, int]


class Answer(NamedTuple):
    """The rows of one range."""

    start: int
    rows: Tensor
    micros: int  # seconds · 10⁶


class Shares:
    """The ranges of every rank.

    Args:
        ranks: How many there are.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._known: dict[int, list[Range]] = {}  # of the last step, by its candidates

    def plan(self, num: int) -> list[list[Bounds]]:
        """For each rank its ranges, in order: the longest go to whoever has least."""
        known = self._known.get(num)
        if known is None:
            cuts = list(cut_evenly(num, FIRST * self._ranks))
            return [
                cuts[len(cuts) * r // self._ranks : len(cuts) * (r + 1) // self._ranks]
                for r in range(self._ranks)
            ]
        taken: list[list[Bounds]] = [[] for _ in range(self._ranks)]
        seconds = [0.0] * self._ranks
        for one in sorted(known, key=lambda one: (-one.seconds, one.start)):
            least = seconds.index(min(seconds))
            taken[least].append((one.start, one.stop))
            seconds[least] += one.seconds
        return [sorted(ranges) for ranges in taken]

    def note(self, num: int, answers: list[Answer]) -> None:
        """What ranges took in a step of so many candidates; half of it counts, half the past."""
        past = {(one.start, one.stop): one.seconds for one in self._known.get(num, [])}
        ranges = []
        for one in answers:
            stop, seconds = one.start + len(one.rows), one.micros / 1e6
            mean = (past.get((one.start, stop), seconds) + seconds) / 2
            ranges.append(Range(one.start, stop, mean))
        self._known = {num: ranges}


def join_rows(answers: list[Answer], num: int) -> Tensor:
    """The rows of all candidates, from ranges in order.

    Raises:
        WorkerError: Ranks cut the step into other tiles.
    """
    place = 0
    for one in answers:
        if one.start != place:
            raise WorkerError(
                f"a rank answered for candidates from {one.start} on where {place} is next, so "
                "ranks do not cut a step alike; do all have the same torch and processor?",
                told_by_all=True,
            )
        place += len(one.rows)
    assert place == num
    return torch.cat([one.rows for one in answers])
