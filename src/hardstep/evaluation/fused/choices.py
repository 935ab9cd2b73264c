"""Operations in which rows choose: the part of a stack, an entry of a row, a row of a table."""

import torch

from hardstep.evaluation.fused.expressions import Expr, Unfusable
from hardstep.evaluation.fused.translate import Bundle, Changed, Translator, argument, register
from hardstep.evaluation.incremental.record import Node


def _stacked(t: Translator, node: Node) -> None:
    """Values of one shape along a new axis 1, some of them changed."""
    refs = [ref.index for ref in node.args[0]]
    ndim = t.base(node.outputs[0]).dim()
    if ndim != 3 or argument(node, 1, "dim", 0) % ndim != 1:
        raise Unfusable("stack other than along axis 1 of two-dimensional values")
    parts: list[Changed | int] = []
    for index in refs:
        part = t.dense(index) if index in t.values else index
        if isinstance(part, Changed) and part.axis != -1:
            raise Unfusable("stack of values that do not vary along their last axis")
        parts.append(part)
    t.values[node.outputs[0]] = Bundle(tuple(parts))


def _gathered(t: Translator, node: Node) -> None:
    """The value that an index chooses: of a stack, or of a row."""
    value, dim, index = node.args[:3]
    out, shape = node.outputs[0], t.base(index.index).shape
    choice = _choice(t, index.index)
    found = t.values.get(value.index)
    if isinstance(found, Bundle):
        if dim % 3 != 1 or shape[1] != 1:
            raise Unfusable("gather other than of one value per row")
        t.values[out] = Changed(_chosen(t, found, choice, out), -1)
        t.program.order_by = index.index
        return
    if found is None and t.base(value.index).dim() == 3 and dim % 3 == 1 and shape[1] == 1:
        slabs = tuple(t.slab(value.index, n) for n in range(t.base(value.index).shape[1]))
        t.values[out] = Changed(_chosen(t, Bundle(slabs), choice, out), -1)
        t.program.order_by = index.index
        return
    if t.base(value.index).dim() != 2 or dim % 2 != 1 or shape[1] != 1:
        raise Unfusable("gather other than of one value per row")
    source = t.dense(value.index).expr if found else t.matrix(value.index)
    if source.domain is None:
        raise Unfusable("gather along an axis that is not followed")
    t.values[out] = Changed(t.g.pick(source, choice))


def _choice(t: Translator, index: int) -> Expr:
    """An index per row, changed or not, the same along all other axes."""
    if index in t.values:
        choice = t.changed(index)
        if choice.axis is not None or choice.column:
            raise Unfusable("gather with an index that varies within a row")
        return choice.expr
    value = t.base(index).flatten(1)
    if not bool((value == value[:, :1]).all()):
        raise Unfusable("gather with an index that varies within a row")
    return t.g.leaf("lane", "i64", t.program.table("first_rows", index))


def _chosen(t: Translator, bundle: Bundle, choice: Expr, out: int) -> Expr:
    """The part that each row chooses; rows keep their base value if theirs did not change."""
    kind, fixed = t.kind(out), choice.op == "lane"
    slot = t.program.table("matrix", out)
    result = t.g.leaf("matrix", kind, slot, domain=t.base(out).shape[-1])
    for number, part in enumerate(bundle.parts):
        if isinstance(part, Changed):
            value = part.expr
        elif fixed:
            continue
        else:
            value = t.matrix(part)
        # Every part under its own condition, so that none is computed where it is not chosen.
        here = t.g.apply("eq", choice, t.g.constant(number, "i64"), kind="i1")
        result = t.g.apply("select", here, value, result, kind=kind)
    return result


def _looked_up(t: Translator, node: Node) -> None:
    """Rows of a table at an index per example; one row of the table may be changed."""
    table, indices = node.args[:2]
    if len(indices) != 1 or indices[0] is None or t.base(table.index).dim() != 2:
        raise Unfusable("indexing other than rows of a matrix")
    at = indices[0].index
    if t.base(at).dtype != torch.int64 or t.base(at).dim() != 1 or table.index in t.values:
        raise Unfusable("indexing other than by one number per row")
    if t.base(at).shape[0] != t.program.num_rows:
        raise Unfusable("indexing across examples")
    if table.index in t.weights and getattr(t.weights[table.index], "axis", None) != 0:
        raise Unfusable("indexing a parameter of which more than a row changes")
    num, size = t.base(table.index).shape
    before = t.g.leaf("lane", "i64", t.program.table("flat_rows", at))
    before = _from_the_front(t, before, num)
    choice = _place(t.changed(at).expr, num) if at in t.values else before
    kind = t.kind(table.index)
    if kind not in ("f32", "f64"):
        raise Unfusable("indexing a table of integers")
    slot = t.program.table("weight", table.index)
    read = t.g.lookup(choice, kind, size, slot)
    if table.index in t.weights:
        slot = t.program.table("candidate", table.index)
        new = t.g.leaf("candidate", kind, slot, domain=size)
        unit = t.g.leaf("unit", "i64")
        here = t.g.apply("eq", choice, unit, kind="i1")
        # Rows that read the changed row are concerned even if nothing else about them changed.
        t.program.exits.append(t.g.apply("eq", before, unit, kind="i1"))
        read = t.g.apply("select", here, new, read, kind=kind)
    t.values[node.outputs[0]] = Changed(read, -1)


def _from_the_front(t: Translator, index: Expr, num: int) -> Expr:
    """Negative indices count from the end."""
    negative = t.g.apply("lt", index, t.g.constant(0, "i64"), kind="i1")
    back = t.g.apply("add", index, t.g.constant(num, "i64"))
    return t.g.apply("select", negative, back, index, kind="i64")


def _place(index: Expr, num: int) -> Expr:
    """A changed index that cannot lie outside a table: there, torch raises and a kernel cannot."""
    if index.op not in ("argmax", "argmin") or (index.args[0].domain or 0) > num:
        raise Unfusable("indexing by something else than an argmax")
    return index


register({"stack": _stacked, "gather": _gathered, "index": _looked_up})
