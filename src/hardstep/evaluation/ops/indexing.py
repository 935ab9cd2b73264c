"""Operators that take what an index says."""

import math
from collections.abc import Mapping

import torch

from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.fused.expressions import (
    Access,
    Apply,
    Cast,
    Constant,
    Expr,
    Fn,
    Kind,
    Read,
    Reduce,
    Reduction,
    Select,
    Unfusable,
)
from hardstep.evaluation.fused.stacks import read_part
from hardstep.evaluation.fused.tables import FirstPerExample, Matrix, PerExample, Replaced, Weight
from hardstep.evaluation.fused.translate import Changed, Stack, Translator
from hardstep.evaluation.gathered.along import call_along
from hardstep.evaluation.gathered.lookups import call_bag, call_embedding, call_gather, call_index
from hardstep.evaluation.incremental.along import carry_beside, find_dims
from hardstep.evaluation.incremental.changes import Examples, Pairs
from hardstep.evaluation.incremental.columns import Column, Lookup, slices_of
from hardstep.evaluation.incremental.examples import (
    Env,
    Result,
    along_dims,
    always,
    gather_examples,
    run_apart,
)
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node, Ref

_along = along_dims()


def _indexes_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    """Along other dimensions than axis 0, of which every operand has all examples."""
    whole = all(base(index).shape[0] == pairs.num_examples for index in node.inputs)
    return whole and _along(node, env, base, pairs)


def _gather_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """One unit of what an index chooses from, along another axis."""
    source, at = node.args[0].index, node.args[2].index
    column, dims = columns.get(source), find_dims(node, base)
    if column is None or at in columns or not dims or column.axis in dims:
        return None
    if base(at).shape[column.axis] != base(source).shape[column.axis]:
        return None
    places = slices_of(base(at), column.axis, column.unit)
    dim = dims[0] - (dims[0] > column.axis) + 1
    return Column(column.axis, column.unit, column.slices.gather(dim, places))


def _look_up(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    """table[indices] with changed indices and a shared table."""
    table, indices = node.args[:2]
    if table.index in env or len(indices) != 1 or indices[0] is None:
        return None
    if base(indices[0].index).dtype == torch.bool:
        return None
    places = gather_examples(indices[0].index, env, base, pairs)
    return (Examples(base(table.index)[places]),)


# -- kernels -----------------------------------------------------------------------------------


def _lower_gather(t: Translator, node: Node) -> None:
    """The value that an index chooses: of unchanged ones along axis 1, or of units."""
    value, dim, index = node.args[:3]
    out, shape = node.outputs[0], t.base(index.index).shape
    if value.index not in t.values and t.base(value.index).dim() == 3:
        unchanged = (None,) * t.base(value.index).shape[1]
        _choose_part(t, node, Stack(value.index, 1, unchanged))
        return
    base = t.base(value.index)
    if base.dim() != 2 or dim % 2 != 1 or shape[1] != 1 or len(base) != t.program.num_examples:
        raise Unfusable("gather other than of one value per example")
    choice = _find_choice(t, index.index, base.shape[1])
    changed = value.index in t.values
    source = t.dense(value.index).expr if changed else t.matrix(value.index)
    if source.domain is None:
        raise Unfusable("gather along an axis that is not followed")
    t.values[out] = Changed(t.g.pick(source, choice))


def _lower_gather_of_stack(t: Translator, node: Node) -> None:
    """The part of a stack that an index chooses."""
    stack = t.values.get(node.args[0].index)
    if not isinstance(stack, Stack) or stack.axis != 1:
        raise Unfusable("gather other than along a stack's axis 1")
    _choose_part(t, node, stack)


def _choose_part(t: Translator, node: Node, stack: Stack) -> None:
    _, dim, index = node.args[:3]
    out = node.outputs[0]
    if t.base(out).dim() != 3 or dim % 3 != 1 or t.base(index.index).shape[1] != 1:
        raise Unfusable("gather other than of one value per example")
    choice = _find_choice(t, index.index, len(stack.parts))
    t.values[out] = Changed(_select_part(t, stack, choice, out), -1)
    t.program.order_by = index.index


def _find_choice(t: Translator, index: int, num: int) -> Expr:
    """An index per example into `num` things, changed or not, the same along all other axes."""
    if index in t.values:
        choice = t.changed(index)
        if choice.axis is not None or choice.column:
            raise Unfusable("gather with an index that varies within an example")
        return _check_place(choice.expr, num)
    value = t.base(index).flatten(1)
    if not bool((value == value[:, :1]).all()):
        raise Unfusable("gather with an index that varies within an example")
    return t.g.read(Access.LANE, Kind.I64, t.program.table(FirstPerExample(index)))


def _select_part(t: Translator, stack: Stack, choice: Expr, out: int) -> Expr:
    """The part that each example chooses; the base value where that part did not change."""
    fixed = isinstance(choice, Read)
    table, size = t.program.table(Matrix(out)), t.base(out).shape[-1]
    result = t.g.read(Access.AXIS_LANE, t.kind(out), table, size)
    for number, part in enumerate(stack.parts):
        if part is None and fixed:
            continue
        value = read_part(t, stack, number, column=False)
        # Every part under its own condition, so that none is computed where it is not chosen.
        here = t.g.apply(Fn.EQ, choice, t.g.constant(number, Kind.I64))
        result = t.g.select(here, value, result)
    return result


def _lower_index(t: Translator, node: Node) -> None:
    """Rows of a weight table at an index per example; one of these rows may be changed."""
    table, indices = node.args[:2]
    if len(indices) != 1 or indices[0] is None or t.base(table.index).dim() != 2:
        raise Unfusable("indexing other than rows of a matrix")
    at = indices[0].index
    if t.base(at).dtype != torch.int64 or t.base(at).dim() != 1 or table.index in t.values:
        raise Unfusable("indexing other than by one number per example")
    if t.base(at).shape[0] != t.program.num_examples:
        raise Unfusable("indexing across examples")
    weight = t.weights.get(table.index)
    if table.index in t.weights and (weight is None or weight.axis != 0):
        raise Unfusable("indexing a parameter of which more than a row changes")
    num, size = t.base(table.index).shape
    before = t.g.read(Access.LANE, Kind.I64, t.program.table(PerExample(at)))
    before = _count_from_front(t, before, num)
    choice = _check_place(t.changed(at).expr, num) if at in t.values else before
    kind = t.kind(table.index)
    if not kind.is_float:
        raise Unfusable("indexing a table of integers")
    read = t.g.lookup(choice, kind, size, t.program.table(Weight(table.index)))
    if table.index in t.weights:
        replaced = t.program.table(Replaced(table.index))
        new, unit = t.g.read(Access.CANDIDATE_AXIS, kind, replaced, size), t.g.unit()
        here = t.g.apply(Fn.EQ, choice, unit)
        # Examples that read the changed row count even if nothing else about them changed.
        t.program.exits.append(t.g.apply(Fn.EQ, before, unit))
        read = t.g.select(here, new, read)
    t.values[node.outputs[0]] = Changed(read, -1)


def _count_from_front(t: Translator, index: Expr, num: int) -> Expr:
    """Negative indices count from the end."""
    negative = t.g.apply(Fn.LT, index, t.g.constant(0, Kind.I64))
    back = t.g.apply(Fn.ADD, index, t.g.constant(num, Kind.I64))
    return t.g.select(negative, back, index)


def _check_place(index: Expr, num: int) -> Expr:
    """A changed index that cannot lie outside a table: there, torch raises and a kernel cannot."""
    low, high = _find_bounds(index)
    if low < 0 or high >= num:
        raise Unfusable("an index that may lie outside what it chooses from")
    return index


def _find_bounds(value: Expr) -> tuple[float, float]:
    """The least and the largest number an expression can be, as far as its form tells."""
    match value:
        case Constant():
            return float(value.value), float(value.value)
        case Reduce(reduction=Reduction.ARGMAX | Reduction.ARGMIN):
            return 0, (value.args[0].domain or 1) - 1
        case Cast() if value.args[0].kind is Kind.I1:
            return 0, 1
        case Apply(function=Fn.MOD):
            return 0, _find_bounds(value.args[1])[1] - 1
        case Select():
            lows, highs = zip(*map(_find_bounds, value.args[1:]), strict=True)
            return min(lows), max(highs)
        case Apply(function=Fn.MAX | Fn.MIN):
            lows, highs = zip(*map(_find_bounds, value.args), strict=True)
            best = max if value.function is Fn.MAX else min
            return best(lows), best(highs)
        case _:
            return -math.inf, math.inf


# -- entries -----------------------------------------------------------------------------------


def _find_masks(node: Node) -> list[Ref]:
    return [index for index in node.args[1] if isinstance(index, Ref)]


OPERATORS = (
    Operator(
        "gather",
        column=_gather_column,
        examples=run_apart(_indexes_within_examples),
        apart=call_gather,
        lanes=_lower_gather,
        stack=_lower_gather_of_stack,
    ),
    Operator("scatter", examples=run_apart(_indexes_within_examples)),
    Operator(
        "index",
        examples=_look_up,
        apart=call_index,
        lanes=_lower_index,
        enters_lanes=True,
        masks=_find_masks,
    ),
    Operator(
        "index_select",
        column=carry_beside,
        examples=run_apart(_along, table=0),
        apart=call_along,
        events=follow_move,
    ),
    Operator("_embedding_bag_forward_only", apart=call_bag),
    Operator("_embedding_bag", apart=call_bag),
    Operator("embedding", examples=run_apart(always, table=1), apart=call_embedding),
)
