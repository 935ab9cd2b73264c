"""Values stacked along a new axis, such as time, followed as the list of their parts.

Nothing is computed for a stack itself. Reducing it over its axis combines the parts element by
element, an index takes one of them, and what does the same to every part makes another stack.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch

from hardstep.evaluation.fused.expressions import Access, Expr, Fn, Unfusable
from hardstep.evaluation.fused.tables import Slab
from hardstep.evaluation.fused.translate import Changed, Make, Merged, Stack, Translator
from hardstep.evaluation.trace.nodes import Node, Ref


def find_slab(t: Translator, stack: Stack | Merged, number: int) -> Slab:
    """The table of a part."""
    examples = t.program.num_examples if isinstance(stack, Merged) else None
    return Slab(stack.whole, stack.axis, number, examples)


def read_part(t: Translator, stack: Stack, number: int, column: bool) -> Expr:
    """A part of a stack, changed or not: at the candidate's unit, or along its axis."""
    part = stack.parts[number]
    if part is None:
        return read_old(t, stack, number, column)
    if part.column and not column:
        at_unit, old = read_old(t, stack, number, True), read_old(t, stack, number, False)
        return t.put_back(part, at_unit, old).expr
    return part.expr


def read_old(t: Translator, stack: Stack | Merged, number: int, column: bool) -> Expr:
    """What a part is without a change."""
    kind, slab = t.kind(stack.whole), t.program.table(find_slab(t, stack, number))
    shape = t.base(stack.whole).shape
    if isinstance(stack, Stack):
        shape = t.base(stack.whole).select(stack.axis, number).shape
    if len(shape) == 1:
        return t.g.read(Access.LANE, kind, slab)
    if column:
        return t.g.read(Access.UNIT_LANE, kind, slab)
    return t.g.read(Access.AXIS_LANE, kind, slab, shape[1])


def read_parts(t: Translator, stack: Stack) -> tuple[list[Expr], bool]:
    """Every part, and whether as columns: as long as all that changed are."""
    column = all(part.column for part in stack.parts if part is not None)
    return [read_part(t, stack, n, column) for n in range(len(stack.parts))], column


def wrap(expr: Expr, column: bool) -> Changed:
    """A value made of parts."""
    return Changed(expr, -1 if column or expr.domain is not None else None, column)


def find_stack(t: Translator, node: Node) -> Stack:
    """The stack that an operation is about."""
    found = t.values.get(node.inputs[0])
    if not isinstance(found, Stack):
        raise Unfusable(f"{node.name} of a stack")
    return found


def find_stack_along(t: Translator, node: Node, dims: Any) -> Stack:
    """The stack that an operation is about, if it goes along its axis and no other."""
    stack = find_stack(t, node)
    dim = dims[0] if isinstance(dims, list) and len(dims) == 1 else dims
    if not isinstance(dim, int) or dim % t.base(stack.whole).dim() != stack.axis:
        raise Unfusable(f"{node.name} of a stack other than along its axis alone")
    return stack


def find_reduced(t: Translator, node: Node, dims: Any) -> Stack:
    """The stack that an operation reduces over its axis, which is then gone."""
    stack = find_stack_along(t, node, dims)
    if t.base(node.outputs[0]).dim() == t.base(stack.whole).dim():
        raise Unfusable(f"{node.name} of a stack with keepdim")
    return stack


def check_part(t: Translator, node: Node, index: int) -> Changed | None:
    """What becomes a part of a stack: a value (examples, units) or (examples,), or nothing."""
    if index not in t.values:
        return None
    shape = t.base(index).shape
    if len(shape) > 2 or shape[0] != t.program.num_examples or index in t.vectors:
        raise Unfusable(f"{node.name} of values that are not (examples, units)")
    return t.changed(index)


def keep_stack(t: Translator, out: int, axis: int, parts: Iterable[Changed | None]) -> None:
    """Remember a stack, its parts in the type of the whole, if any of them changed."""
    kind = t.kind(out)

    def cast(part: Changed | None) -> Changed | None:
        return part and Changed(t.g.cast(part.expr, kind), part.axis, part.column)

    kept = tuple(cast(part) for part in parts)
    if any(kept):
        t.values[out] = Stack(out, axis, kept)


def add_parts(t: Translator, terms: list[Expr]) -> Expr:
    """The sum of parts."""
    return reduce(lambda a, b: t.g.apply(Fn.ADD, a, b), terms)


def lower_alike(t: Translator, node: Node, make: Make) -> None:
    """An element-wise operation on values of one shape, stacked alike, and on single numbers."""
    out, shape = node.outputs[0], t.base(node.outputs[0]).shape
    stacks = _align_stacks(t, node, shape)
    columns = [part.column for stack in stacks.values() for part in stack.parts if part is not None]
    column, axis = all(columns), next(iter(stacks.values())).axis

    def apply(number: int) -> Changed | None:
        if all(stack.parts[number] is None for stack in stacks.values()):
            return None

        def operand(ref: Ref) -> Expr:
            if ref.index in stacks:
                return read_part(t, stacks[ref.index], number, column)
            return t.read_shared(ref.index, len(shape), None, column)

        return wrap(make(node, t.base, t.g, operand), column)

    keep_stack(t, out, axis, map(apply, range(shape[axis])))


def _align_stacks(t: Translator, node: Node, shape: torch.Size) -> dict[int, Stack]:
    """The operands of a shape, by number; one that does not change is a stack of old parts."""
    changed = {index: t.values[index] for index in node.inputs if index in t.values}
    axes = {value.axis if isinstance(value, Stack) else None for value in changed.values()}
    axis = axes.pop()
    stacks: dict[int, Stack] = {}
    for index in node.inputs:
        value = changed.get(index)
        if isinstance(value, Stack):
            stacks[index] = value
        elif t.base(index).numel() != 1 and axis is not None:
            stacks[index] = Stack(index, axis, (None,) * shape[axis])
    if axis is None or axes or any(t.base(index).shape != shape for index in stacks):
        raise Unfusable(f"{node.name} of a stack and other values")
    return stacks
