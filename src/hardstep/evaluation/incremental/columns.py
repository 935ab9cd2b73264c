"""A change of one index of one axis: a batch-long vector instead of a matrix."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hardstep.evaluation.trace.nodes import Node

Lookup = Callable[[int], Tensor]  # base value by number


@dataclass(frozen=True)
class Column:
    """`slices[i]` stands at index `unit[i]` of `axis` for candidate i."""

    axis: int
    unit: Tensor  # (n,)
    slices: Tensor  # (n, *shape without axis)


Columns = tuple[Column, ...]
ColumnRule = Callable[[Node, Mapping[int, Column], Lookup], Column | Columns | None]


class KnowsColumns(Protocol):
    """What has to be known about an operator to carry columns."""

    @property
    def column(self) -> ColumnRule | None:
        """The changes of the results, or nothing if they are not columns any more."""


def slices_of(base: Tensor, axis: int, unit: Tensor) -> Tensor:
    """The base's slices at each candidate's unit, (n, *shape without axis)."""
    return base.movedim(axis, 0)[unit]


def carry_columns(
    node: Node, env: Mapping[int, object], base: Lookup, operators: Mapping[str, KnowsColumns]
) -> Columns | None:
    """The changes of a node's results as columns, or nothing if they do not stay columns."""
    columns: dict[int, Column] = {}
    for index in node.inputs:
        change = env.get(index)
        if isinstance(change, Column):
            columns[index] = change
        elif change is not None:
            return None
    rule = operators[node.name].column
    if rule is None or not _agree([column.unit for column in columns.values()]):
        return None
    found = rule(node, columns, base)
    return (found,) if isinstance(found, Column) else found


def carry_parameters(
    node: Node,
    env: Mapping[int, Column | None],
    base: Lookup,
    operators: Mapping[str, KnowsColumns],
) -> Columns | None:
    """The same of parameters, if a changed row also keeps its number: kernels know one of each."""
    changes = carry_columns(node, env, base, operators)
    source, row = next(iter(env.items()))
    assert row is not None
    num = base(source).shape[row.axis]
    outputs = zip(node.outputs, changes or (), strict=False)
    if any(base(out).shape[change.axis] != num for out, change in outputs):
        return None
    return changes


def _agree(units: list[Tensor]) -> bool:
    """Whether all columns stand at the same units; parts of one axis need not."""
    return all(unit is units[0] or torch.equal(unit, units[0]) for unit in units)
