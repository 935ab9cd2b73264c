"""What candidates change about a recorded value, in the smallest form that holds it.

    Column    one index of one axis (an output unit, a channel) differs: its new slice
    Examples  some indices of axis 0 differ for some candidates: their new values
    Stacked   anything may differ: one whole value per candidate

A value without a change is shared by all candidates. Conversions go down this list only.
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from hardstep.evaluation.incremental.columns import Column, slices_of

KEPT_BYTES = 4 << 20  # gathered examples up to this size are kept for the next operation


@dataclass(frozen=True)
class Examples:
    """`values[m]` is example `pairs.example[m]` of candidate `pairs.candidate[m]`."""

    values: Tensor  # (M, *shape[1:])


@dataclass(frozen=True)
class Stacked:
    """One value per candidate."""

    values: Tensor  # (n, *shape)


Change = Column | Examples | Stacked


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which (candidate, example) pairs differ from the base."""

    candidate: Tensor  # (M,)
    example: Tensor  # (M,)
    num_candidates: int
    num_examples: int
    _gathered: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def examples_of(self, value: Tensor) -> Tensor:
        """A shared value's examples at the pairs; asked for again, not gathered again."""
        return self._gather(value, self.example)

    def entries_of(self, table: Tensor) -> Tensor:
        """Entries (M,) of a table (candidates, examples)."""
        return table.reshape(-1).index_select(0, self._flat)

    def units_of(self, matrix: Tensor, unit: Tensor) -> Tensor:
        """Examples of a matrix at each pair's unit."""
        return self._gather(matrix, self._units(unit))

    @cached_property
    def _flat(self) -> Tensor:
        return self.candidate * self.num_examples + self.example

    def _units(self, unit: Tensor) -> Tensor:
        return self._gather(unit, self.candidate)

    def _gather(self, value: Tensor, index: Tensor) -> Tensor:
        # Keys are addresses of tensors that the record and this object keep alive.
        key = (id(value), id(index))
        found = self._gathered.get(key)
        if found is None:
            found = value.index_select(0, index)
            if found.numel() * found.element_size() <= KEPT_BYTES:
                self._gathered[key] = found
        return found


def changed_examples(base: Tensor, column: Column) -> Tensor:
    """(n, examples): whether anything in a candidate's example differs from the base."""
    differs = column.slices != slices_of(base, column.axis, column.unit)
    return differs.flatten(2).any(dim=2) if differs.dim() > 2 else differs


def column_to_examples(base: Tensor, column: Column, pairs: Pairs) -> Examples:
    """Whole examples with the column's entry put in."""
    values = base[pairs.example]
    unit = column.unit[pairs.candidate]
    new = column.slices[pairs.candidate, pairs.example]
    values.movedim(column.axis, 1)[torch.arange(len(unit), device=unit.device), unit] = new
    return Examples(values)


def stack(base: Tensor, change: Change | None, num: int, pairs: Pairs | None) -> Stacked:
    """Any change, or none, as one value per candidate."""
    if isinstance(change, Stacked):
        return change
    if change is None:
        return Stacked(base.expand(num, *base.shape))
    values = base.unsqueeze(0).repeat(num, *[1] * base.dim())
    if isinstance(change, Column):
        candidates = torch.arange(num, device=base.device)
        values.movedim(change.axis + 1, 1)[candidates, change.unit] = change.slices
    else:
        assert pairs is not None
        values[pairs.candidate, pairs.example] = change.values
    return Stacked(values)
