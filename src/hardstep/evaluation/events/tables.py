"""Tables that a step makes of recorded values, shared by its blocks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hardstep._threads import share_out
from hardstep.evaluation.events.program import Table
from hardstep.evaluation.trace.record import Record


class Tables:
    """Tables that a step makes of recorded values, shared by its blocks."""

    def __init__(self, written: Record) -> None:
        self.written = written
        self.made: dict[object, Tensor] = {}
        self._sums: dict[object, Tensor] = {}

    def prepare(self, wanted: Sequence[Table], checked: Sequence[Table]) -> None:
        """Make tables, and sums of those that are checked, which each thread still has at hand.

        One is too small for several threads, so they take one each.
        """
        missing = list({t.key: t for t in wanted if t.key not in self.made}.values())
        summed = {table.key for table in checked}

        def make(first: int, last: int) -> None:
            with torch.no_grad():  # threads have a setting of their own
                for table in missing[first:last]:
                    made = self.get(table)
                    if table.key in summed:
                        self._sums[table.key] = made.sum()

        if missing:
            share_out(len(missing), make, largest_piece=1)

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
