"""Values stacked along an axis of their own, such as time, followed as the list of their parts.

Nothing is computed for a stack itself. Reducing it over its axis combines the parts element by
element, an index takes one of them, and what does the same to every part makes another stack.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch

from hardstep.evaluation.fused.expressions import FLOATS, Expr, Unfusable
from hardstep.evaluation.fused.operations import BUILD
from hardstep.evaluation.fused.rules import best_results, close, reshaped, softmax
from hardstep.evaluation.fused.translate import Bundle, Changed, Translator, argument, register
from hardstep.evaluation.trace.record import Node, Ref

Part = Changed | None

# -- parts -----------------------------------------------------------------------------------


def read_part(t: Translator, bundle: Bundle, number: int, column: bool) -> Expr:
    """A part of a stack, changed or not: at the candidate's unit, or along its axis."""
    part = bundle.parts[number]
    if part is None:
        return _old(t, bundle, number, column)
    if part.column and not column:
        at_unit, old = _old(t, bundle, number, True), _old(t, bundle, number, False)
        return t.placed(part, at_unit, old).expr
    return part.expr


def _old(t: Translator, bundle: Bundle, number: int, column: bool) -> Expr:
    """What a part is without a change."""
    kind, shape = t.kind(bundle.whole), t.base(bundle.whole).select(bundle.axis, number).shape
    slot = t.program.table("slab", (bundle.whole, bundle.axis, number))
    if len(shape) == 1:
        return t.g.leaf("lane", kind, slot)
    return t.g.leaf("at_unit", kind, slot) if column else t.g.leaf("matrix", kind, slot, shape[1])


def _read(t: Translator, bundle: Bundle) -> tuple[list[Expr], bool]:
    """Every part, and whether as columns: as long as all that changed are."""
    column = all(part.column for part in bundle.parts if part is not None)
    return [read_part(t, bundle, n, column) for n in range(len(bundle.parts))], column


def _value(expr: Expr, column: bool) -> Changed:
    return Changed(expr, -1 if column or expr.domain is not None else None, column)


def _stack(t: Translator, node: Node) -> Bundle:
    """The stack that an operation is about."""
    found = t.values.get(node.inputs[0])
    if not isinstance(found, Bundle):
        raise Unfusable(f"{node.name} of a stack")
    return found


def _keep(t: Translator, out: int, axis: int, parts: Iterable[Part]) -> None:
    """Remember a stack, its parts in the type of the whole, if any of them changed."""
    kind = t.kind(out)

    def cast(part: Part) -> Part:
        return part and Changed(t.g.cast(part.expr, kind), part.axis, part.column)

    kept = tuple(cast(part) for part in parts)
    if any(kept):
        t.values[out] = Bundle(out, axis, kept)


def _along(t: Translator, node: Node, dims: Any) -> Bundle:
    """The stack that an operation is about, if it goes along its axis and no other."""
    bundle = _stack(t, node)
    dim = dims[0] if isinstance(dims, list) and len(dims) == 1 else dims
    if not isinstance(dim, int) or dim % t.base(bundle.whole).dim() != bundle.axis:
        raise Unfusable(f"{node.name} of a stack other than along its axis alone")
    return bundle


# -- stacking ----------------------------------------------------------------------------------


def _stacked(t: Translator, node: Node) -> None:
    """Values (examples, units) or (examples,) along a new axis."""
    out = node.outputs[0]
    axis = argument(node, 1, "dim", 0) % t.base(out).dim()
    _keep(t, out, axis, [_part(t, node, ref.index) for ref in node.args[0]])


def _part(t: Translator, node: Node, index: int) -> Part:
    if index not in t.values:
        return None
    shape = t.base(index).shape
    if len(shape) > 2 or shape[0] != t.program.num_rows or index in t.vectors:
        raise Unfusable(f"{node.name} of values that are not (examples, units)")
    return t.changed(index)


def _unsqueezed(t: Translator, node: Node) -> None:
    """A new axis before the examples makes a stack of one."""
    (index,) = node.inputs
    before = node.args[1] % (t.base(index).dim() + 1) == 0
    if before and t.program.num_rows > 1:
        _keep(t, node.outputs[0], 0, [_part(t, node, index)])
    else:
        reshaped(t, node)


def _joined(t: Translator, node: Node) -> None:
    """Stacks one after the other, and values whose axis there has size 1."""
    out = node.outputs[0]
    ndim = t.base(out).dim()
    axis = argument(node, 1, "dim", 0) % ndim
    parts: list[Part] = []
    for index in (ref.index for ref in node.args[0]):
        found, shape = t.values.get(index), t.base(index).shape
        if found is None:
            # Torch lets an empty vector stand before the first value of a list.
            parts += [None] * (shape[axis] if len(shape) == ndim else 0)
        elif isinstance(found, Bundle) and found.axis == axis:
            parts += found.parts
        elif isinstance(found, Changed) and ndim == 3 and _is_part(t, found, shape, axis):
            parts.append(found)
        else:
            raise Unfusable("cat other than of values with an axis of their own")
    _keep(t, out, axis, parts)


def _is_part(t: Translator, found: Changed, shape: torch.Size, axis: int) -> bool:
    """Whether a value without its axis of size 1 is (examples, units), followed along units."""
    rows = shape[1] if axis == 0 else shape[0]
    followed = found.axis is None or (found.axis == -1 and axis < 2)
    return shape[axis] == 1 and rows == t.program.num_rows and followed


# -- taking apart ------------------------------------------------------------------------------


def _unbound(t: Translator, node: Node) -> None:
    bundle = _along(t, node, argument(node, 1, "dim", 0))
    for out, part in zip(node.outputs, bundle.parts, strict=True):
        if part is not None:
            t.values[out] = part


def _selected(t: Translator, node: Node) -> None:
    bundle = _along(t, node, node.args[1])
    part = bundle.parts[node.args[2]]
    if part is not None:
        t.values[node.outputs[0]] = part


def _sliced(t: Translator, node: Node) -> None:
    bundle = _along(t, node, argument(node, 1, "dim", 0))
    start, end, step = [*node.args[2:5], None, None, None][:3]
    _keep(t, node.outputs[0], bundle.axis, bundle.parts[start:end:step])


def _viewed(t: Translator, node: Node) -> None:
    """A view or an expansion that changes nothing."""
    bundle, out = _stack(t, node), node.outputs[0]
    if t.base(out).shape != t.base(bundle.whole).shape:
        raise Unfusable(f"{node.name} of a stack")
    t.values[out] = bundle


# -- reductions --------------------------------------------------------------------------------


def _summed(t: Translator, node: Node) -> None:
    """A sum or mean over the parts, or over everything."""
    out, dims = node.outputs[0], argument(node, 1, "dim", None)
    if node.kwargs.keys() - {"dtype"}:
        raise Unfusable(f"{node.name} of a stack with {', '.join(node.kwargs)}")
    if not dims or len(dims) == t.base(node.inputs[0]).dim():
        _close(t, node)
        return
    bundle, kind = _reduced(t, node, dims), t.kind(out)
    exprs, column = _read(t, bundle)
    total = _total(t, [t.g.cast(expr, kind) for expr in exprs])
    if node.name == "mean":
        total = t.g.apply("div", total, t.g.constant(len(exprs), kind))
    t.values[out] = _value(total, column)


def _reduced(t: Translator, node: Node, dims: Any) -> Bundle:
    """The stack that an operation reduces over its axis, which is then gone."""
    bundle = _along(t, node, dims)
    if t.base(node.outputs[0]).dim() == t.base(bundle.whole).dim():
        raise Unfusable(f"{node.name} of a stack with keepdim")
    return bundle


def _total(t: Translator, terms: list[Expr]) -> Expr:
    return reduce(lambda a, b: t.g.apply("add", a, b), terms)


def _close(t: Translator, node: Node) -> None:
    """Everything added up: the differences of the changed parts, in double precision."""
    bundle, out, g = _stack(t, node), node.outputs[0], t.g
    if t.kind(bundle.whole) != t.kind(out) or t.kind(out) not in FLOATS:
        raise Unfusable(f"{node.name} of a stack with another type")

    def gap(number: int) -> Expr:
        new, old = read_part(t, bundle, number, False), _old(t, bundle, number, False)
        return g.apply("sub", g.cast(new, "f64"), g.cast(old, "f64"))

    gaps = [gap(number) for number, part in enumerate(bundle.parts) if part is not None]
    count = t.base(bundle.whole).numel() if node.name == "mean" else 1
    close(t, out, _total(t, gaps), count)


def _best(t: Translator, node: Node) -> None:
    """The largest or smallest part at every place, and the first time it is reached."""
    bundle, g = _reduced(t, node, argument(node, 1, "dim", None)), t.g
    which, within = ("max", "le") if "max" in node.name else ("min", "ge")
    (extreme, *others), column = _read(t, bundle)
    place = g.constant(0, "i64")
    for number, expr in enumerate(others, start=1):
        # As in torch, not-a-number beats every number, and only the first one counts.
        beaten = g.apply("not", g.apply(within, expr, extreme, kind="i1"))
        beaten = g.apply("and", beaten, g.apply("eq", extreme, extreme, kind="i1"))
        place = g.apply("select", beaten, g.constant(number, "i64"), place, kind="i64")
        extreme = g.apply(which, extreme, expr)
    for out, expr in zip(node.outputs, best_results(node, extreme, place), strict=True):
        t.values[out] = _value(expr, column)


# -- every part alike --------------------------------------------------------------------------


def _each(t: Translator, node: Node) -> None:
    """An element-wise operation on one stack and single numbers."""
    out = node.outputs[0]
    index, *more = set(node.inputs) & t.values.keys()
    bundle, others = t.values[index], set(node.inputs) - {index}
    alone = not more and all(t.base(other).numel() == 1 for other in others)
    if not isinstance(bundle, Bundle) or not alone or t.base(out).shape != t.base(index).shape:
        raise Unfusable(f"{node.name} of a stack and other values")
    exprs, column = _read(t, bundle)

    def applied(number: int) -> Changed:
        def operand(ref: Ref) -> Expr:
            if ref.index == index:
                return exprs[number]
            return t.shared(ref.index, t.base(out).dim(), None, column)

        return _value(t.applied(node, operand), column)

    parts = [part and applied(number) for number, part in enumerate(bundle.parts)]
    _keep(t, out, bundle.axis, parts)


def _softmax(t: Translator, node: Node) -> None:
    """Softmax along the units of every part."""
    bundle, ndim = _stack(t, node), t.base(node.inputs[0]).dim()
    if ndim != 3 or bundle.axis == 2 or node.args[1] % ndim != 2:
        raise Unfusable(f"{node.name} of a stack other than along its last axis")

    def normalised(number: int) -> Changed:
        return _value(softmax(t.g, node.name, read_part(t, bundle, number, False)), False)

    parts = [part and normalised(number) for number, part in enumerate(bundle.parts)]
    _keep(t, node.outputs[0], bundle.axis, parts)


register(
    {"stack": _stacked, "unsqueeze": _unsqueezed, "cat": _joined},
    on_stacks={
        **dict.fromkeys(BUILD, _each),
        **dict.fromkeys(("sum", "mean"), _summed),
        **dict.fromkeys(("argmax", "argmin", "amax", "amin", "max", "min"), _best),
        **dict.fromkeys(("view", "_unsafe_view", "expand"), _viewed),
        **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
        "cat": _joined,
        "unbind": _unbound,
        "select": _selected,
        "slice": _sliced,
    },
)
