"""Operators that give the same numbers other names: transposes, views, axes of size 1."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from hardstep.evaluation.events.elementwise import follow_view_of
from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.fused.expressions import Expr, Unfusable
from hardstep.evaluation.fused.stacks import check_part, find_stack, keep_stack
from hardstep.evaluation.fused.states import keep_row
from hardstep.evaluation.fused.translate import Changed, Lowering, Merged, Stack, Translator
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.shapes import call_expansion, call_view, reorder
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.columns import Column, ColumnRule, Lookup
from hardstep.evaluation.incremental.examples import Check, Env, along_dims, run_apart
from hardstep.evaluation.ops.arithmetic import keep
from hardstep.evaluation.ops.elementwise import elementwise
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

Order = Callable[[Node, int], list[int]]  # the old dimensions of each new one, of so many


# -- transposes --------------------------------------------------------------------------------


def _permute(node: Node, ndim: int) -> list[int]:
    return [d % ndim for d in node.args[1]]


def _transpose(node: Node, ndim: int) -> list[int]:
    order = list(range(ndim))
    a, b = (d % ndim for d in node.args[1:3])
    order[a], order[b] = order[b], order[a]
    return order


def _turn(node: Node, ndim: int) -> list[int]:
    return list(range(ndim))[::-1]


def _reorder_column(order: Order) -> ColumnRule:
    def rule(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
        (index,) = node.inputs
        column, dims = columns[index], order(node, base(index).dim())
        # Position of an old dimension within a slice, which lacks the changed axis.
        within = [d - (d > column.axis) for d in dims if d != column.axis]
        slices = column.slices.permute(0, *[d + 1 for d in within])
        return Column(dims.index(column.axis), column.unit, slices)

    return rule


def _leaves_examples(order: Order) -> Check:
    def check(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
        return order(node, base(node.inputs[0]).dim())[0] == 0

    return check


def _reorder_stack(order: Order) -> Lowering:
    """The axis of a stack may go anywhere; examples still come before units."""

    def lower(t: Translator, node: Node) -> None:
        stack, out = find_stack(t, node), node.outputs[0]
        dims = order(node, t.base(out).dim())
        others = [dim for dim in dims if dim != stack.axis]
        if others != sorted(others):
            raise Unfusable(f"{node.name} of units and examples")
        keep_stack(t, out, dims.index(stack.axis), stack.parts)

    return lower


def _reordering(name: str, order: Order) -> Operator:
    return Operator(
        name,
        column=_reorder_column(order),
        examples=run_apart(_leaves_examples(order)),
        apart=reorder(order),
        stack=_reorder_stack(order),
        events=follow_view_of,
        order=order,
    )


# -- other shapes ------------------------------------------------------------------------------


def _reshape_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """A view that leaves the changed axis a dimension of its own."""
    (index,) = node.inputs
    if base(index).dtype != base(node.outputs[0]).dtype:
        return None  # the same bits, read as other numbers
    column, old = columns[index], base(index).shape
    new = base(node.outputs[0]).shape
    before = old[: column.axis].numel()
    for axis, size in enumerate(new):
        if size == old[column.axis] and new[:axis].numel() == before:
            rest = [*new[:axis], *new[axis + 1 :]]
            return Column(axis, column.unit, column.slices.reshape(len(column.unit), *rest))
    return None


def _unsqueeze_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    (index,) = node.inputs
    column, ndim = columns[index], base(index).dim()
    dim = node.args[1] % (ndim + 1)
    axis = column.axis + (dim <= column.axis)
    place = dim - (dim > axis)
    return Column(axis, column.unit, column.slices.unsqueeze(place + 1))


def _expand_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """Copies of a value along other axes than the changed one."""
    (index,) = node.inputs
    column, old, new = columns[index], base(index).shape, base(node.outputs[0]).shape
    axis = column.axis + len(new) - len(old)
    if old[column.axis] != new[axis]:
        return None
    num, rest = len(column.unit), [*new[:axis], *new[axis + 1 :]]
    lead = [1] * (len(new) - len(old))
    slices = column.slices.reshape(num, *lead, *column.slices.shape[1:]).expand(num, *rest)
    return Column(axis, column.unit, slices)


def _keeps_leading(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    """Whether axis 0 is left as it is."""
    before, after = base(node.inputs[0]).shape, base(node.outputs[0]).shape
    shaped = isinstance(node.args[1], list | tuple)
    return shaped and len(after) > 0 and before[0] == after[0] == pairs.num_examples


def _expands_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    same = base(node.inputs[0]).dim() == base(node.outputs[0]).dim()
    return same and _keeps_leading(node, env, base, pairs)


def _lead(args: list[Any], num: int) -> list[Any]:
    """A shape that is written out begins with the number of examples."""
    return [args[0], [num, *args[1][1:]], *args[2:]]


# -- kernels -----------------------------------------------------------------------------------


def _lower_view(t: Translator, node: Node) -> None:
    """A view that keeps the examples; the followed axis must stay an axis of its own."""
    (index,) = node.inputs
    out = node.outputs[0]
    new, found = t.base(out).shape, t.changed(index)
    if len(new) == 0 or new[0] != t.program.num_examples:
        raise Unfusable(f"{node.name} across examples")
    if t.base(index).dtype != t.base(out).dtype:
        raise Unfusable(f"{node.name} of the same bits as another type")
    if found.axis is None:
        t.values[out] = Changed(found.expr)
        return
    size = t.base(index).shape[found.axis]
    places = [d - len(new) for d in range(1, len(new)) if new[d] == size]
    if size == 1 and len(places) != 1 and new[1:].numel() == 1:
        t.values[out] = t.only_unit(index)
        return
    if len(places) != 1 or new[1:].numel() != size:
        raise Unfusable(f"{node.name} mixes the followed axis with others")
    t.values[out] = Changed(found.expr, places[0], found.column)


def _lower_expansion(t: Translator, node: Node) -> None:
    """Examples stay in front; the followed axis stays as it is, or is of size 1."""
    (index,) = node.inputs
    out = node.outputs[0]
    new, found = t.base(out).shape, t.changed(index)
    if len(new) == 0 or new[0] != t.program.num_examples:
        raise Unfusable(f"{node.name} across examples")
    if len(new) != t.base(index).dim() and index not in t.vectors:
        raise Unfusable("expand that puts an axis before the examples")
    if found.axis is None or new[found.axis] == t.base(index).shape[found.axis]:
        t.values[out] = found
    else:
        t.values[out] = t.only_unit(index)


def _lower_unsqueeze(t: Translator, node: Node) -> None:
    """A new axis before the examples makes a stack of one."""
    (index,) = node.inputs
    before = node.args[1] % (t.base(index).dim() + 1) == 0
    if before and t.program.num_examples > 1:
        keep_stack(t, node.outputs[0], 0, [check_part(t, node, index)])
    else:
        _lower_view(t, node)


def _reshape_stack(t: Translator, node: Node) -> None:
    """A view that makes one axis of a stack's and the examples, takes them apart, or neither."""
    found, out = t.values[node.inputs[0]], node.outputs[0]
    shape, old = t.base(out).shape, t.base(node.inputs[0]).shape
    if isinstance(found, Stack) and shape == (*_merge(old), *old[2:]) and found.axis < 2:
        t.values[out] = Merged(out, found.axis, found.parts)
    elif isinstance(found, Merged) and old == (*_merge(shape), *shape[2:]):
        if shape[found.axis] != len(found.parts):
            raise Unfusable(f"{node.name} mixes time and examples")
        keep_stack(t, out, found.axis, found.parts)
    else:
        _keep_stack(t, node)


def _merge(shape: torch.Size) -> tuple[int]:
    return (shape[:2].numel(),)


def _keep_stack(t: Translator, node: Node) -> None:
    """A view or an expansion that changes nothing."""
    stack, out = find_stack(t, node), node.outputs[0]
    if t.base(out).shape != t.base(stack.whole).shape:
        raise Unfusable(f"{node.name} of a stack")
    t.values[out] = stack


def _build_rows(b: Builder, node: Node) -> list[Expr]:
    """The same rows."""
    index = node.inputs[0]
    b.check_source(index)
    b.check_result(node.outputs[0])
    return [b.operand(index, index)]


# -- entries -----------------------------------------------------------------------------------


def _view(name: str) -> Operator:
    return Operator(
        name,
        column=_reshape_column,
        examples=run_apart(_keeps_leading, resize=_lead),
        apart=call_view,
        rows=_build_rows,
        lanes=_lower_view,
        stack=_reshape_stack,
        events=follow_view_of,
    )


OPERATORS = (
    _reordering("permute", _permute),
    _reordering("transpose", _transpose),
    replace(_reordering("t", _turn), examples=None),
    _view("view"),
    _view("_unsafe_view"),
    Operator(
        "expand",
        column=_expand_column,
        examples=run_apart(_expands_within_examples, resize=_lead),
        apart=call_expansion,
        lanes=_lower_expansion,
        stack=_keep_stack,
        spread_row=keep_row,
        events=follow_move,
    ),
    Operator(
        "unsqueeze",
        column=_unsqueeze_column,
        examples=run_apart(along_dims(new_axes=1)),
        apart=call_view,
        lanes=_lower_unsqueeze,
        events=follow_view_of,
    ),
    Operator(
        "squeeze",
        column=_reshape_column,
        examples=run_apart(along_dims()),
        apart=call_view,
        lanes=_lower_view,
        events=follow_view_of,
    ),
    replace(elementwise("alias", keep), events=follow_view_of),
    replace(elementwise("detach", keep), events=follow_view_of),
)
