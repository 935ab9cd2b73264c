"""Operators that take parts of an axis: select, slice, split."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hardstep.evaluation.events.elementwise import follow_view_of
from hardstep.evaluation.fused.stacks import find_stack_along, keep_stack
from hardstep.evaluation.fused.translate import Lowering, Translator, find_argument
from hardstep.evaluation.incremental.along import carry_beside, find_dims
from hardstep.evaluation.incremental.columns import Column, ColumnRule, Columns, Lookup, slices_of
from hardstep.evaluation.incremental.examples import along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node


def _narrow(
    starts: Callable[[Node, int, list[int]], tuple[list[int], int]],
) -> ColumnRule:
    """Parts of an axis: the candidates whose unit is not in a part change nothing of it.

    Args:
        starts: From a node, the size of the axis and the sizes of the parts: where parts start,
            and their step.
    """

    def rule(node: Node, columns: Mapping[int, Column], base: Lookup) -> Columns | None:
        ((index, column),) = columns.items()
        if find_dims(node, base) != [column.axis]:
            return carry_beside(node, columns, base)
        sizes = [base(out).shape[column.axis] for out in node.outputs]
        if 0 in sizes:
            return None
        first, step = starts(node, base(index).shape[column.axis], sizes)
        parts = zip(node.outputs, first, strict=True)
        return tuple(_take_part(column, base(out), start, step) for out, start in parts)

    return rule


def _start_slice(node: Node, size: int, sizes: list[int]) -> tuple[list[int], int]:
    start, _, step = slice(*[*node.args[2:5], None, None, None][:3]).indices(size)
    return [start], step


def _start_split(node: Node, size: int, sizes: list[int]) -> tuple[list[int], int]:
    return [sum(sizes[:number]) for number in range(len(sizes))], 1


def _take_part(column: Column, part: Tensor, start: int, step: int) -> Column:
    """The column in every `step`-th unit from `start` on, or one that is as in the base."""
    size = part.shape[column.axis]
    place = (column.unit - start) // step
    inside = (place >= 0) & (place < size) & ((column.unit - start) % step == 0)
    # Wherever else it is put, nothing changes; so, columns of equal parts stand at equal units.
    unit = place % size
    old = slices_of(part, column.axis, unit)
    inside = inside.reshape(-1, *[1] * (old.dim() - 1))
    return Column(column.axis, unit, torch.where(inside, column.slices, old))


# -- parts of a stack --------------------------------------------------------------------------


def _lower_unbind(t: Translator, node: Node) -> None:
    stack = find_stack_along(t, node, find_argument(node, 1, "dim", 0))
    for out, part in zip(node.outputs, stack.parts, strict=True):
        if part is not None:
            t.values[out] = part


def _lower_select(t: Translator, node: Node) -> None:
    stack = find_stack_along(t, node, node.args[1])
    part = stack.parts[node.args[2]]
    if part is not None:
        t.values[node.outputs[0]] = part


def _lower_slice(t: Translator, node: Node) -> None:
    stack = find_stack_along(t, node, find_argument(node, 1, "dim", 0))
    start, end, step = [*node.args[2:5], None, None, None][:3]
    keep_stack(t, node.outputs[0], stack.axis, stack.parts[start:end:step])


def _part(name: str, column: ColumnRule, stack: Lowering | None = None) -> Operator:
    return Operator(
        name,
        column=column,
        examples=run_apart(along_dims()),
        stack=stack,
        events=follow_view_of,
    )


OPERATORS = (
    _part("select", carry_beside, _lower_select),
    _part("unbind", carry_beside, _lower_unbind),
    _part("slice", _narrow(_start_slice), _lower_slice),
    _part("split", _narrow(_start_split)),
    _part("split_with_sizes", _narrow(_start_split)),
)
