"""Operators that take parts of an axis: select, slice, split."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.evaluation.events.elementwise import follow_view_of
from hardstep.evaluation.fused.expressions import Stretch, Unfusable
from hardstep.evaluation.fused.parts import take_unit, take_units
from hardstep.evaluation.fused.stacks import find_stack, keep_stack, read_old, read_part
from hardstep.evaluation.fused.translate import Changed, Stack, Translator
from hardstep.evaluation.gathered import ApartRule
from hardstep.evaluation.gathered.along import call_along, call_part
from hardstep.evaluation.incremental.along import carry_beside, find_dims
from hardstep.evaluation.incremental.columns import Column, ColumnRule, Columns, Lookup, slices_of
from hardstep.evaluation.incremental.examples import along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

# From a node, the size of the axis and the sizes of the parts: where parts start, and their step.
Starts = Callable[[Node, int, list[int]], tuple[list[int], int]]


def _narrow(starts: Starts) -> ColumnRule:
    """Parts of an axis: the candidates whose unit is not in a part change nothing of it."""

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


# -- kernels -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Takes:
    """How an operator takes an axis apart."""

    starts: Starts
    drops: bool = False  # the dimension is then gone

    def list_parts(self, t: Translator, node: Node, dim: int) -> list[tuple[int, Stretch]]:
        """The outputs, each with its part."""
        shapes = [t.base(out).shape for out in node.outputs]
        sizes = [1 if self.drops else shape[dim] for shape in shapes]
        starts, step = self.starts(node, t.base(node.inputs[0]).shape[dim], sizes)
        parts = zip(starts, sizes, strict=True)
        return [
            (out, Stretch(start, size, step))
            for out, (start, size) in zip(node.outputs, parts, strict=True)
        ]

    def lower(self, t: Translator, node: Node) -> None:
        """Parts of the followed axis; along another one every part is the same."""
        (index,) = node.inputs
        value, found, dim = t.base(index), t.changed(index), _find_dim(t, node)
        if dim == 0:
            raise Unfusable(f"{node.name} takes examples apart")
        behind = dim - value.dim()
        if behind != found.axis:
            axis = found.axis
            if axis is not None and self.drops and behind > axis:
                axis += 1
            t.values.update(dict.fromkeys(node.outputs, Changed(found.expr, axis, found.column)))
            return
        if value.dim() != 2:
            raise Unfusable(f"{node.name} of a value with more axes than examples and units")
        for out, units in self.list_parts(t, node, dim):
            if self.drops:
                t.values[out] = take_unit(t, found, t.matrix(index), units.start)
            elif units.size == value.shape[1]:
                t.values[out] = found
            else:
                t.values[out] = take_units(t, t.dense(index).expr, units)

    def lower_stack(self, t: Translator, node: Node) -> None:
        """Parts along a stack's axis are some of its values; along units, parts of every value."""
        stack, dim = find_stack(t, node), _find_dim(t, node)
        if dim != stack.axis:
            self._take_apart(t, node, stack, dim)
            return
        for out, units in self.list_parts(t, node, dim):
            last = units.start + units.size * units.step
            chosen = stack.parts[units.start : last : units.step]
            if not self.drops:
                keep_stack(t, out, stack.axis, chosen)
            elif chosen[0] is not None:
                t.values[out] = chosen[0]

    def _take_apart(self, t: Translator, node: Node, stack: Stack, dim: int) -> None:
        """The same units of every value of a stack."""
        if t.base(stack.whole).dim() != 3 or dim - (dim > stack.axis) == 0:
            raise Unfusable(f"{node.name} takes examples apart")

        def take(number: int, units: Stretch) -> Changed | None:
            value = stack.parts[number]
            if value is None:
                return None
            if self.drops:
                return take_unit(t, value, read_old(t, stack, number, False), units.start)
            return take_units(t, read_part(t, stack, number, column=False), units)

        axis = stack.axis - (self.drops and dim < stack.axis)
        for out, units in self.list_parts(t, node, dim):
            keep_stack(t, out, axis, [take(number, units) for number in range(len(stack.parts))])


def _find_dim(t: Translator, node: Node) -> int:
    dims = find_dims(node, t.base)
    assert dims is not None
    return dims[0]


def _start_select(node: Node, size: int, sizes: list[int]) -> tuple[list[int], int]:
    return [node.args[2] % size], 1


def _part(name: str, column: ColumnRule, takes: _Takes, apart: ApartRule = call_along) -> Operator:
    return Operator(
        name,
        column=column,
        examples=run_apart(along_dims()),
        apart=apart,
        lanes=takes.lower,
        stack=takes.lower_stack,
        events=follow_view_of,
    )


OPERATORS = (
    _part("select", carry_beside, _Takes(_start_select, drops=True), call_part),
    _part("unbind", carry_beside, _Takes(_start_split, drops=True)),
    _part("slice", _narrow(_start_slice), _Takes(_start_slice), call_part),
    _part("split", _narrow(_start_split), _Takes(_start_split)),
    _part("unsafe_split", _narrow(_start_split), _Takes(_start_split)),
    _part("split_with_sizes", _narrow(_start_split), _Takes(_start_split)),
)
