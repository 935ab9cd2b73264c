"""Tables that a step makes of recorded values, shared by its blocks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hardstep._threads import share_out
from hardstep.evaluation.events.program import Table
from hardstep.evaluation.trace.nodes import Record

LARGE = 200_000  # numbers of a table
CALLS = 50_000  # numbers moved in the time that a table's calls take, about


class Tables:
    """Tables that a step makes of recorded values, shared by its blocks."""

    def __init__(self, written: Record) -> None:
        self.written = written
        self.made: dict[object, Tensor] = {}
        self._sums: dict[object, Tensor] = {}

    def prepare(self, wanted: Sequence[Table], checked: Sequence[Table]) -> None:
        """Make tables, and sums of those that are checked, which each thread still has at hand.

        One is too small for several threads, so each takes its share of them, all at once: between
        them, threads would wait for Python's lock.
        """
        missing = list({t.key: t for t in wanted if t.key not in self.made}.values())
        summed = {table.key for table in checked}
        shares = _share_evenly(missing, torch.get_num_threads())

        def make(first: int, last: int) -> None:
            with torch.no_grad():  # threads have a setting of their own
                for table in (table for share in shares[first:last] for table in share):
                    made = self.get(table)
                    if table.key in summed:
                        self._sums[table.key] = made.sum()

        if missing:
            share_out(len(shares), make)

    def get(self, table: Table) -> Tensor:
        """A table; made when it is first asked for."""
        if table.key not in self.made:
            self.made[table.key] = table.make(self.written.values.__getitem__).contiguous()
        return self.made[table.key]

    def is_finite(self, table: Table) -> bool:
        """Whether its numbers are finite, all of them (or so large that their sum is not)."""
        if table.key not in self._sums:
            self._sums[table.key] = self.get(table).sum()
        return math.isfinite(self._sums[table.key].item())


def _share_evenly(tables: list[Table], num: int) -> list[list[Table]]:
    """Shares of about the same time: small tables together, and large ones from the largest down.

    Small ones are calls for the most part, and only one thread at a time makes calls.
    """
    small = [table for table in tables if table.size < LARGE]
    shares: list[list[Table]] = [small, *([] for _ in range(1, num))]
    times = [len(small) * CALLS, *[0] * (num - 1)]
    for table in sorted(tables, key=lambda table: -table.size)[: len(tables) - len(small)]:
        least = times.index(min(times))
        shares[least].append(table)
        times[least] += table.size + CALLS
    return shares
