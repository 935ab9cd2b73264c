"""Operators that act number by number: one rule per form of change serves all of them."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.elementwise import follow_elementwise
from hardstep.evaluation.fused.expressions import KINDS, Expr, Kind, Number, Unfusable
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.stacks import lower_alike
from hardstep.evaluation.fused.translate import Make, Translator, find_kind
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.shapes import call_elementwise
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.columns import Column, Lookup, slices_of
from hardstep.evaluation.incremental.examples import Env, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node, Ref

Operand = Expr | Number | str | None  # strings are words such as a rounding mode
Operands = Sequence[Operand]
# Graph, operands, kind of the result (of comparisons: of what is compared).
Build = Callable[[Graph, Operands, Kind], Expr]


def elementwise(
    name: str,
    build: Build | None = None,
    *,
    keyword: str = "",
    ignored: Container[str] = (),
    compares: bool = False,
    is_hard: bool = False,
) -> Operator:
    """The entry of an operator that acts number by number.

    Args:
        name: Of the operator.
        build: Its expression, from operands; without one, no kernel knows the operator.
        keyword: The keyword argument that becomes the last operand.
        ignored: Keyword arguments that do not matter.
        compares: Whether it finds truths about numbers of another kind.
        is_hard: Whether close numbers often have the same result.
    """
    carried = Operator(
        name,
        column=_carry_column,
        examples=run_apart(_broadcasts_by_example),
        apart=call_elementwise,
        is_elementwise=True,
        is_hard=is_hard,
    )
    if build is None:
        return carried
    make = _make_expression(build, keyword, ignored, compares)
    return replace(
        carried,
        rows=partial(_build_rows, make=make),
        lanes=partial(_lower, make=make),
        stack=partial(lower_alike, make=make),
        spread_row=make,
        events=partial(follow_elementwise, make=make),
    )


# -- kernels -----------------------------------------------------------------------------------


def read(g: Graph, value: Operand, kind: Kind) -> Expr:
    """An operand in a kind."""
    if value is None or isinstance(value, str):
        raise Unfusable("an operand is missing")
    if not isinstance(value, Number):
        return g.cast(value, kind)
    if isinstance(value, float) and kind is Kind.I64:
        raise Unfusable("a fraction among integers")
    return g.constant(value, kind)


def _make_expression(build: Build, keyword: str, ignored: Container[str], compares: bool) -> Make:
    def make(node: Node, base: Lookup, graph: Graph, operand: Callable[[Ref], Expr]) -> Expr:
        kind = _find_compared_kind(node, base) if compares else find_kind(base(node.outputs[0]))
        args, kwargs = node.filled(operand)
        rest = {key: value for key, value in kwargs.items() if key not in ignored}
        args += [rest.pop(keyword)] if keyword in rest else []
        if rest:
            raise Unfusable(f"{node.name} with {', '.join(rest)}")
        return build(graph, args, kind)

    return make


def _find_compared_kind(node: Node, base: Lookup) -> Kind:
    """The kind in which torch compares: a number or a lone value does not widen a tensor."""
    args, _ = node.filled(lambda ref: base(ref.index))
    kind = KINDS.get(torch.result_type(*args[:2]))
    if kind is None:
        raise Unfusable(f"{node.name} of other types than {', '.join(map(str, KINDS.values()))}")
    return kind


def _lower(t: Translator, node: Node, make: Make) -> None:
    t.values[node.outputs[0]] = t.apply_elementwise(node, make)


def _build_rows(b: Builder, node: Node, make: Make) -> list[Expr]:
    out = node.outputs[0]
    b.check_result(out)
    expr = make(node, b.base, b.graph, lambda ref: b.operand(ref.index, out))
    if expr.domain is None:
        raise Unfusable(f"{node.name} of numbers that are the same all along a row")
    return [expr]


# -- columns and examples ----------------------------------------------------------------------


def _align(column: Column, ndim: int, own: int) -> Column:
    """The column of a value broadcast to `ndim` dimensions (new ones lead)."""
    lead = ndim - own
    if lead == 0:
        return column
    slices = column.slices.reshape(len(column.unit), *[1] * lead, *column.slices.shape[1:])
    return Column(column.axis + lead, column.unit, slices)


def _carry_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    if len(node.outputs) != 1 or node.func is None:
        return None
    shape = base(node.outputs[0]).shape
    aligned = {i: _align(c, len(shape), base(i).dim()) for i, c in columns.items()}
    axes = {column.axis for column in aligned.values()}
    first = next(iter(aligned.values()))
    sizes = {base(i).shape[columns[i].axis] for i in columns}
    if len(axes) != 1 or sizes != {shape[first.axis]}:
        return None  # different axes, or the changed axis is broadcast: not one column any more

    def operand(leaf: Ref) -> Tensor:
        if leaf.index in aligned:
            return aligned[leaf.index].slices
        value = base(leaf.index)
        if value.dim() == 0:
            return value
        value = value.reshape(*[1] * (len(shape) - value.dim()), *value.shape)
        if value.shape[first.axis] == 1:
            return value.movedim(first.axis, 0)
        return slices_of(value, first.axis, first.unit)

    args, kwargs = node.filled(operand)
    return Column(first.axis, first.unit, node.func(*args, **kwargs))


def _broadcasts_by_example(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    """Operands have the examples as their axis 0, or are the same for all; changed ones have."""
    ndim = base(node.outputs[0]).dim()
    shared = (1, pairs.num_examples)
    apart = all(base(i).dim() < ndim or base(i).shape[0] in shared for i in node.inputs)
    return apart and all(base(index).dim() == ndim for index in node.inputs if index in env)
