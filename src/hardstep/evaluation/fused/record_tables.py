"""A step's recorded values as the tables that kernels read, shared by its blocks."""

import math
from typing import assert_never

import torch
from torch import Tensor

from hardstep.evaluation.fused.expressions import Stretch, Unfusable
from hardstep.evaluation.fused.layouts import Inputs, find_varying, lay_out
from hardstep.evaluation.fused.tables import (
    FirstPerExample,
    Flat,
    LabelWeight,
    Matrix,
    OfRecord,
    PartOf,
    PerExample,
    PickedScore,
    Slab,
    Weight,
)
from hardstep.evaluation.trace.nodes import Record


class Tables:
    """The recorded base values in the layouts that kernels read; made once per step."""

    def __init__(self, written: Record) -> None:
        self.written = written
        self._made: dict[tuple[OfRecord, int | None, int], Tensor] = {}
        self._varying: dict[tuple[OfRecord, int | None, int], Inputs] = {}
        self._finite: dict[int, bool] = {}
        self._orders: dict[int, Tensor] = {}

    def get(self, table: OfRecord, order: Tensor | None, stride: int) -> Tensor:
        """A table; blocks with the same order of examples share it."""
        key = (table, id(order) if order is not None else None, stride)
        if key not in self._made:
            self._made[key] = self._make(table, order, stride)
        return self._made[key]

    def inputs(self, table: OfRecord, order: Tensor | None, stride: int, num: int) -> Inputs:
        """Examples as what meets a weight: so many, and which of their units vary."""
        key = (table, id(order) if order is not None else None, stride)
        if key not in self._varying:
            self._varying[key] = find_varying(self.get(table, order, stride), num)
        return self._varying[key]

    def is_finite(self, index: int) -> bool:
        """Whether a recorded value is finite everywhere (or so large that its sum is not)."""
        if index not in self._finite:
            self._finite[index] = math.isfinite(self.written.values[index].sum())
        return self._finite[index]

    def sort_examples(self, index: int) -> Tensor:
        """Their order by a recorded value."""
        if index not in self._orders:
            choice = self.written.values[index].flatten(1)[:, 0]
            self._orders[index] = choice.argsort(stable=True)
        return self._orders[index]

    def _make(self, table: OfRecord, order: Tensor | None, stride: int) -> Tensor:
        values = self.written.values
        match table:
            case Flat():
                return values[table.index].reshape(-1)
            case Weight():
                return values[table.index].contiguous()
            case Matrix():
                rows = values[table.index].flatten(1)
            case PerExample():
                rows = values[table.index].reshape(-1)
            case FirstPerExample():
                wide = values[table.index].flatten(1)
                if not bool((wide == wide[:, :1]).all()):  # so it was planned, on other numbers
                    raise Unfusable("gather with an index that varies within an example")
                rows = wide[:, 0]
            case Slab():
                whole = values[table.index]
                if table.examples is not None:
                    sizes = (table.examples, -1) if table.axis else (-1, table.examples)
                    whole = whole.reshape(*sizes, whole.shape[1])
                rows = whole.select(table.axis, table.number)
            case PartOf():
                whole = self.get(table.whole, order, stride)
                side = 1 if _has_rows(table.whole) else 0
                return whole.index_select(side, _list_units(table.units))
            case PickedScore():
                scores, labels = values[table.scores], values[table.labels]
                rows = scores.gather(1, labels.clamp(0, scores.shape[1] - 1)[:, None])[:, 0]
            case LabelWeight():
                rows = self._label_weights(table)
            case _:
                assert_never(table)
        return lay_out(rows, order, stride)

    def _label_weights(self, table: LabelWeight) -> Tensor:
        labels = self.written.values[table.labels]
        counted = labels != table.ignored
        if table.weight is None:
            return counted.double()
        classes = self.written.values[table.weight]
        return torch.where(counted, classes[labels.clamp(0, len(classes) - 1)].double(), 0.0)


def _has_rows(table: OfRecord) -> bool:
    """Whether units are its columns."""
    return isinstance(table, Weight) or (isinstance(table, PartOf) and _has_rows(table.whole))


def _list_units(units: Stretch) -> Tensor:
    return torch.arange(units.size) * units.step + units.start
