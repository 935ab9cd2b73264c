"""Values stacked along a new axis, such as time, followed as the list of their parts.

Nothing is computed for a stack itself. Reducing it over its axis combines the parts element by
element, an index takes one of them, and what does the same to every part makes another stack.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch

from hardstep.evaluation.fused.expressions import Access, Expr, Fn, Kind, Unfusable
from hardstep.evaluation.fused.tables import Slab
from hardstep.evaluation.fused.translate import Changed, Lowering, Stack, Translator, find_argument
from hardstep.evaluation.fused.translate_axes import (
    build_softmax,
    close_sum,
    list_results,
    lower_view,
)
from hardstep.evaluation.fused.translate_elementwise import BUILD
from hardstep.evaluation.trace.record import Node, Ref

# -- parts -----------------------------------------------------------------------------------


def read_part(t: Translator, stack: Stack, number: int, column: bool) -> Expr:
    """A part of a stack, changed or not: at the candidate's unit, or along its axis."""
    part = stack.parts[number]
    if part is None:
        return _read_old(t, stack, number, column)
    if part.column and not column:
        at_unit, old = _read_old(t, stack, number, True), _read_old(t, stack, number, False)
        return t.put_back(part, at_unit, old).expr
    return part.expr


def _read_old(t: Translator, stack: Stack, number: int, column: bool) -> Expr:
    """What a part is without a change."""
    kind, shape = t.kind(stack.whole), t.base(stack.whole).select(stack.axis, number).shape
    slab = t.program.table(Slab(stack.whole, stack.axis, number))
    if len(shape) == 1:
        return t.g.read(Access.LANE, kind, slab)
    if column:
        return t.g.read(Access.UNIT_LANE, kind, slab)
    return t.g.read(Access.AXIS_LANE, kind, slab, shape[1])


def _read_parts(t: Translator, stack: Stack) -> tuple[list[Expr], bool]:
    """Every part, and whether as columns: as long as all that changed are."""
    column = all(part.column for part in stack.parts if part is not None)
    return [read_part(t, stack, n, column) for n in range(len(stack.parts))], column


def _wrap(expr: Expr, column: bool) -> Changed:
    return Changed(expr, -1 if column or expr.domain is not None else None, column)


def _find_stack(t: Translator, node: Node) -> Stack:
    """The stack that an operation is about."""
    found = t.values.get(node.inputs[0])
    if not isinstance(found, Stack):
        raise Unfusable(f"{node.name} of a stack")
    return found


def _keep(t: Translator, out: int, axis: int, parts: Iterable[Changed | None]) -> None:
    """Remember a stack, its parts in the type of the whole, if any of them changed."""
    kind = t.kind(out)

    def cast(part: Changed | None) -> Changed | None:
        return part and Changed(t.g.cast(part.expr, kind), part.axis, part.column)

    kept = tuple(cast(part) for part in parts)
    if any(kept):
        t.values[out] = Stack(out, axis, kept)


def _find_stack_along(t: Translator, node: Node, dims: Any) -> Stack:
    """The stack that an operation is about, if it goes along its axis and no other."""
    stack = _find_stack(t, node)
    dim = dims[0] if isinstance(dims, list) and len(dims) == 1 else dims
    if not isinstance(dim, int) or dim % t.base(stack.whole).dim() != stack.axis:
        raise Unfusable(f"{node.name} of a stack other than along its axis alone")
    return stack


# -- stacking ----------------------------------------------------------------------------------


def _lower_stack(t: Translator, node: Node) -> None:
    """Values (examples, units) or (examples,) along a new axis."""
    out = node.outputs[0]
    axis = find_argument(node, 1, "dim", 0) % t.base(out).dim()
    _keep(t, out, axis, [_check_part(t, node, ref.index) for ref in node.args[0]])


def _check_part(t: Translator, node: Node, index: int) -> Changed | None:
    if index not in t.values:
        return None
    shape = t.base(index).shape
    if len(shape) > 2 or shape[0] != t.program.num_examples or index in t.vectors:
        raise Unfusable(f"{node.name} of values that are not (examples, units)")
    return t.changed(index)


def _lower_unsqueeze(t: Translator, node: Node) -> None:
    """A new axis before the examples makes a stack of one."""
    (index,) = node.inputs
    before = node.args[1] % (t.base(index).dim() + 1) == 0
    if before and t.program.num_examples > 1:
        _keep(t, node.outputs[0], 0, [_check_part(t, node, index)])
    else:
        lower_view(t, node)


def _lower_cat(t: Translator, node: Node) -> None:
    """Stacks one after the other, and values whose axis there has size 1."""
    out = node.outputs[0]
    ndim = t.base(out).dim()
    axis = find_argument(node, 1, "dim", 0) % ndim
    parts: list[Changed | None] = []
    for index in (ref.index for ref in node.args[0]):
        found, shape = t.values.get(index), t.base(index).shape
        if found is None:
            # Torch lets an empty vector stand before the first value of a list.
            parts += [None] * (shape[axis] if len(shape) == ndim else 0)
        elif isinstance(found, Stack) and found.axis == axis:
            parts += found.parts
        elif isinstance(found, Changed) and ndim == 3 and _is_part(t, found, shape, axis):
            parts.append(found)
        else:
            raise Unfusable("cat other than of values along a new axis")
    _keep(t, out, axis, parts)


def _is_part(t: Translator, found: Changed, shape: torch.Size, axis: int) -> bool:
    """Whether a value without its axis of size 1 is (examples, units), followed along units."""
    examples = shape[1] if axis == 0 else shape[0]
    followed = found.axis is None or (found.axis == -1 and axis < 2)
    return shape[axis] == 1 and examples == t.program.num_examples and followed


# -- taking apart ------------------------------------------------------------------------------


def _lower_unbind(t: Translator, node: Node) -> None:
    stack = _find_stack_along(t, node, find_argument(node, 1, "dim", 0))
    for out, part in zip(node.outputs, stack.parts, strict=True):
        if part is not None:
            t.values[out] = part


def _lower_select(t: Translator, node: Node) -> None:
    stack = _find_stack_along(t, node, node.args[1])
    part = stack.parts[node.args[2]]
    if part is not None:
        t.values[node.outputs[0]] = part


def _lower_slice(t: Translator, node: Node) -> None:
    stack = _find_stack_along(t, node, find_argument(node, 1, "dim", 0))
    start, end, step = [*node.args[2:5], None, None, None][:3]
    _keep(t, node.outputs[0], stack.axis, stack.parts[start:end:step])


def _lower_view(t: Translator, node: Node) -> None:
    """A view or an expansion that changes nothing."""
    stack, out = _find_stack(t, node), node.outputs[0]
    if t.base(out).shape != t.base(stack.whole).shape:
        raise Unfusable(f"{node.name} of a stack")
    t.values[out] = stack


# -- reductions --------------------------------------------------------------------------------


def _lower_sum(t: Translator, node: Node) -> None:
    """A sum or mean over the parts, or over everything."""
    out, dims = node.outputs[0], find_argument(node, 1, "dim", None)
    if node.kwargs.keys() - {"dtype"}:
        raise Unfusable(f"{node.name} of a stack with {', '.join(node.kwargs)}")
    if not dims or len(dims) == t.base(node.inputs[0]).dim():
        _close_stack(t, node)
        return
    stack, kind = _find_reduced(t, node, dims), t.kind(out)
    exprs, column = _read_parts(t, stack)
    total = _add_parts(t, [t.g.cast(expr, kind) for expr in exprs])
    if node.name == "mean":
        total = t.g.apply(Fn.DIV, total, t.g.constant(len(exprs), kind))
    t.values[out] = _wrap(total, column)


def _find_reduced(t: Translator, node: Node, dims: Any) -> Stack:
    """The stack that an operation reduces over its axis, which is then gone."""
    stack = _find_stack_along(t, node, dims)
    if t.base(node.outputs[0]).dim() == t.base(stack.whole).dim():
        raise Unfusable(f"{node.name} of a stack with keepdim")
    return stack


def _add_parts(t: Translator, terms: list[Expr]) -> Expr:
    return reduce(lambda a, b: t.g.apply(Fn.ADD, a, b), terms)


def _close_stack(t: Translator, node: Node) -> None:
    """Everything added up: the differences of the changed parts, in double precision."""
    stack, out, g = _find_stack(t, node), node.outputs[0], t.g
    if t.kind(stack.whole) != t.kind(out) or not t.kind(out).is_float:
        raise Unfusable(f"{node.name} of a stack with another type")

    def gap(number: int) -> Expr:
        new, old = read_part(t, stack, number, False), _read_old(t, stack, number, False)
        return g.apply(Fn.SUB, g.cast(new, Kind.F64), g.cast(old, Kind.F64))

    gaps = [gap(number) for number, part in enumerate(stack.parts) if part is not None]
    count = t.base(stack.whole).numel() if node.name == "mean" else 1
    close_sum(t, out, _add_parts(t, gaps), count)


def _lower_best(t: Translator, node: Node) -> None:
    """The largest or smallest part at every place, and the first time it is reached."""
    stack, g = _find_reduced(t, node, find_argument(node, 1, "dim", None)), t.g
    which, within = (Fn.MAX, Fn.LE) if "max" in node.name else (Fn.MIN, Fn.GE)
    (extreme, *others), column = _read_parts(t, stack)
    place = g.constant(0, Kind.I64)
    for number, expr in enumerate(others, start=1):
        # As in torch, not-a-number beats every number, and only the first one counts.
        beaten = g.apply(Fn.NOT, g.apply(within, expr, extreme))
        beaten = g.apply(Fn.AND, beaten, g.apply(Fn.EQ, extreme, extreme))
        place = g.select(beaten, g.constant(number, Kind.I64), place)
        extreme = g.apply(which, extreme, expr)
    for out, expr in zip(node.outputs, list_results(node, extreme, place), strict=True):
        t.values[out] = _wrap(expr, column)


# -- every part alike --------------------------------------------------------------------------


def _lower_elementwise(t: Translator, node: Node) -> None:
    """An element-wise operation on one stack and single numbers."""
    out = node.outputs[0]
    index, *more = set(node.inputs) & t.values.keys()
    stack, others = t.values[index], set(node.inputs) - {index}
    alone = not more and all(t.base(other).numel() == 1 for other in others)
    if not isinstance(stack, Stack) or not alone or t.base(out).shape != t.base(index).shape:
        raise Unfusable(f"{node.name} of a stack and other values")
    exprs, column = _read_parts(t, stack)

    def apply(number: int) -> Changed:
        def operand(ref: Ref) -> Expr:
            if ref.index == index:
                return exprs[number]
            return t.read_shared(ref.index, t.base(out).dim(), None, column)

        return _wrap(t.apply(node, operand), column)

    parts = [part and apply(number) for number, part in enumerate(stack.parts)]
    _keep(t, out, stack.axis, parts)


def _lower_softmax(t: Translator, node: Node) -> None:
    """Softmax along the units of every part."""
    stack, ndim = _find_stack(t, node), t.base(node.inputs[0]).dim()
    if ndim != 3 or stack.axis == 2 or node.args[1] % ndim != 2:
        raise Unfusable(f"{node.name} of a stack other than along its last axis")

    def normalize(number: int) -> Changed:
        return _wrap(build_softmax(t.g, node.name, read_part(t, stack, number, False)), False)

    parts = [part and normalize(number) for number, part in enumerate(stack.parts)]
    _keep(t, node.outputs[0], stack.axis, parts)


STACKING: dict[str, Lowering] = {
    "stack": _lower_stack,
    "unsqueeze": _lower_unsqueeze,
    "cat": _lower_cat,
}
ON_STACKS: dict[str, Lowering] = {
    **dict.fromkeys(BUILD, _lower_elementwise),
    **dict.fromkeys(("sum", "mean"), _lower_sum),
    **dict.fromkeys(("argmax", "argmin", "amax", "amin", "max", "min"), _lower_best),
    **dict.fromkeys(("view", "_unsafe_view", "expand"), _lower_view),
    **dict.fromkeys(("_softmax", "_log_softmax"), _lower_softmax),
    "cat": _lower_cat,
    "unbind": _lower_unbind,
    "select": _lower_select,
    "slice": _lower_slice,
}
