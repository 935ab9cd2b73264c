"""A change of one index of one axis: a batch-long vector instead of a matrix."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hardstep.evaluation.trace.record import Node

Lookup = Callable[[int], Tensor]  # base value by number


@dataclass(frozen=True)
class Column:
    """`slices[i]` stands at index `unit[i]` of `axis` for candidate i."""

    axis: int
    unit: Tensor  # (n,)
    slices: Tensor  # (n, *shape without axis)


ColumnRule = Callable[[Node, Mapping[int, Column], Lookup], Column | None]


class KnowsColumns(Protocol):
    """What has to be known about an operator to carry columns."""

    @property
    def column(self) -> ColumnRule | None:
        """The change of the result, or nothing if it is not a column any more."""


def slices_of(base: Tensor, axis: int, unit: Tensor) -> Tensor:
    """The base's slices at each candidate's unit, (n, *shape without axis)."""
    return base.movedim(axis, 0)[unit]


def carry_column(
    node: Node, env: Mapping[int, object], base: Lookup, operators: Mapping[str, KnowsColumns]
) -> Column | None:
    """The change of a node's result as a column, or nothing if it does not stay one."""
    columns: dict[int, Column] = {}
    for index in node.inputs:
        change = env.get(index)
        if isinstance(change, Column):
            columns[index] = change
        elif change is not None:
            return None
    rule = operators[node.name].column
    return rule(node, columns, base) if rule else None
