"""Tables that a step makes of recorded values, shared by its blocks."""

from torch import Tensor

from hardstep.evaluation.events.program import Table
from hardstep.evaluation.trace.record import Record


class Tables:
    """Tables that a step makes of recorded values, shared by its blocks."""

    def __init__(self, written: Record) -> None:
        self.written = written
        self.made: dict[object, Tensor] = {}

    def get(self, table: Table) -> Tensor:
        """A table; made when it is first asked for."""
        if table.key not in self.made:
            self.made[table.key] = table.make(self.written.values.__getitem__).contiguous()
        return self.made[table.key]

    def is_finite(self, table: Table) -> bool:
        """Whether its numbers are finite, all of them (or so large that their sum is not)."""
        key = ("finite", table.key)
        if key not in self.made:
            self.made[key] = self.get(table).sum()
        return bool(self.made[key].isfinite())
