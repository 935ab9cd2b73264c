"""Matrix products: x·W, and x·W + b."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.events.layouts import Layout, pad
from hardstep.evaluation.events.linear import as_index
from hardstep.evaluation.events.linear_stages import write_product
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Table, Word, slot_words
from hardstep.evaluation.events.zeros import Sums, Terms, restore_zeros
from hardstep.evaluation.fused.expressions import (
    Access,
    Expr,
    Fn,
    Kind,
    Product,
    Reduction,
    Stretch,
    Unfusable,
)
from hardstep.evaluation.fused.kernel_plan import Factors
from hardstep.evaluation.fused.stacks import find_slab, read_old
from hardstep.evaluation.fused.tables import Displaced, Flat, Matrix, Slab, Weight
from hardstep.evaluation.fused.translate import Changed, Merged, Translator
from hardstep.evaluation.gathered.products import call_batch_product, call_product
from hardstep.evaluation.incremental.changes import Examples, Pairs
from hardstep.evaluation.incremental.columns import Column, Lookup, slices_of
from hardstep.evaluation.incremental.examples import Env, Result, always, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node


def find_factors(node: Node) -> Factors:
    """The factors of a product node."""
    *bias, left, right = (argument.index for argument in node.args)
    return Factors(left, right, bias[0] if bias else None)


def _find_scales(node: Node) -> dict[str, Any]:
    return {"beta": 1, "alpha": 1} | dict(node.kwargs)


def _adds_a_matrix(bias: int | None, base: Lookup) -> bool:
    """Whether what is added is not an entry per unit."""
    return bias is not None and base(bias).dim() == 2 and base(bias).shape[0] != 1


# -- columns -----------------------------------------------------------------------------------


def _carry_column(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """One column of W changed, or only the bias."""
    left, right, bias = find_factors(node)
    if left in columns or base(node.outputs[0]).dim() != 2 or _adds_a_matrix(bias, base):
        return None
    moved = columns.get(bias) if bias is not None else None
    if moved is not None and bias is not None and base(bias).dim() != 1:
        return None
    weight, scale = columns.get(right), _find_scales(node)
    if weight is None:
        assert moved is not None
        assert bias is not None
        shift = moved.slices - base(bias)[moved.unit]
        old = slices_of(base(node.outputs[0]), 1, moved.unit)
        return Column(1, moved.unit, old + scale["beta"] * shift[:, None])
    if weight.axis != 1:
        return None
    slices = torch.mm(weight.slices, base(left).T)
    if bias is not None:
        slices = slices if scale["alpha"] == 1 else scale["alpha"] * slices
        entry = moved.slices if moved else _find_entries(base(bias), weight.unit)
        slices = slices + scale["beta"] * entry[:, None]
    return Column(1, weight.unit, slices)


def _find_entries(bias: Tensor, unit: Tensor) -> Tensor:
    return bias.reshape(-1)[unit] if bias.numel() > 1 else bias.reshape(-1).expand(len(unit))


def _carry_column_of_batch(
    node: Node, columns: Mapping[int, Column], base: Lookup
) -> Column | None:
    """One column of every right factor changed."""
    left, right = (argument.index for argument in node.args)
    column = columns.get(right)
    if left in columns or column is None or column.axis != 2:
        return None
    slices = torch.bmm(base(left), column.slices.permute(1, 2, 0))
    return Column(2, column.unit, slices.permute(2, 0, 1))


# -- examples ----------------------------------------------------------------------------------


def _carry_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    """Examples of x times a shared matrix; a changed column of x is a rank-one update."""
    left, right, bias = find_factors(node)
    if right in env or bias in env or left not in env or _adds_a_matrix(bias, base):
        return None
    change, matrix, scale = env[left], base(right), _find_scales(node)
    if isinstance(change, Column):
        old = slices_of(base(left), 1, change.unit)
        delta = pairs.entries_of(change.slices - old)
        weights = pairs.units_of(matrix, change.unit)
        old_values = pairs.examples_of(base(node.outputs[0]))
        return (Examples(torch.addcmul(old_values, delta[:, None], weights, value=scale["alpha"])),)
    assert isinstance(change, Examples)
    if bias is None:
        return (Examples(change.values @ matrix),)
    return (Examples(torch.addmm(base(bias), change.values, matrix, **scale)),)


# -- kernels -----------------------------------------------------------------------------------


def _lower(t: Translator, node: Node) -> None:
    """x·W + b with x changed: a rank-one update of a column, or a product of what differs."""
    left, right, bias = find_factors(node)
    out = node.outputs[0]
    changed = set(node.inputs) & t.values.keys()
    if any(scale != 1 for scale in node.kwargs.values()):
        raise Unfusable(f"{node.name} with a scale")
    if t.base(out).dim() != 2 or t.base(out).shape[0] != t.program.num_examples:
        raise Unfusable(f"{node.name} across examples")
    if bias is not None and changed == {bias} and bias in t.vectors:
        _shift(t, bias, out)
        return
    if changed != {left} or left in t.vectors or left in t.weights:
        raise Unfusable(f"{node.name}: more than the left factor changes")
    if _adds_a_matrix(bias, t.base):
        raise Unfusable("addmm with a matrix added")
    kind = t.kind(out)
    if not kind.is_float:
        raise Unfusable(f"{node.name} of {kind}")
    t.program.updated.add(out)
    found = t.changed(left)
    old = t.at_unit(left) if found.column else t.matrix(left)
    t.values[out] = _multiply(t, found, old, right, Matrix(out))
    if not t.weights.keys().isdisjoint((right, bias)):
        _add_moved_row(t, node, left, right, bias)


def _lower_stack(t: Translator, node: Node) -> None:
    """The same for every part of a stack, whose axis and examples are one for a product."""
    left, right, bias = find_factors(node)
    stack, out = t.values.get(left), node.outputs[0]
    changed = set(node.inputs) & (t.values.keys() | t.weights.keys())
    if not isinstance(stack, Merged) or changed != {left} or _adds_a_matrix(bias, t.base):
        raise Unfusable(f"{node.name} of a stack")
    if any(scale != 1 for scale in node.kwargs.values()) or not t.kind(out).is_float:
        raise Unfusable(f"{node.name} of a stack, with a scale or of {t.kind(out)}")
    result = Merged(out, stack.axis, stack.parts)
    parts: list[Changed | None] = []
    for number, part in enumerate(stack.parts):
        if part is not None:
            old = read_old(t, stack, number, part.column)
            part = _multiply(t, part, old, right, find_slab(t, result, number))
        parts.append(part)
    t.program.updated.add(out)
    t.values[out] = replace(result, parts=tuple(parts))


def _multiply(
    t: Translator, found: Changed, old: Expr, right: int, result: Matrix | Slab
) -> Changed:
    """The old product, and what the change of its left factor adds."""
    kind, size = old.kind, t.base(right).shape[1]
    weight, base = t.program.table(Weight(right)), t.program.table(result)
    if found.column:
        t.leave_axis(found.expr, old)
        delta = t.g.apply(Fn.SUB, found.expr, old)
        factor = t.g.read(Access.UNIT_AXIS, kind, weight, size)
        update = t.g.apply(Fn.MUL, delta, factor)
        before = t.g.read(Access.AXIS_LANE, kind, base, size)
        return Changed(t.g.apply(Fn.ADD, before, update), -1)
    if found.expr.domain is None:
        raise Unfusable("a product with a value that does not vary along its axis")
    change = t.g.apply(Fn.SUB, found.expr, old)
    return Changed(t.g.product(change, Stretch(0, size), weight, base), -1)


def _add_moved_row(t: Translator, node: Node, left: int, right: int, bias: int | None) -> None:
    """A recurrent weight: its changed row meets what it changed itself, one step earlier."""
    out, column = node.outputs[0], t.weights.get(right)
    product, kind = t.changed(out).expr, t.kind(out)
    terms = []
    if right in t.weights:
        if column is None or column.axis != 1:
            raise Unfusable("the changed row of a parameter is not a unit of its product")
        inputs = t.dense(left).expr
        row = t.g.read(
            Access.CANDIDATE_AXIS, kind, t.program.table(Displaced(right)), inputs.domain
        )
        terms.append(t.g.reduce(Reduction.TOTAL, t.g.apply(Fn.MUL, inputs, row)))
    if bias is not None and bias in t.weights:
        if t.base(bias).dim() != 1 or t.weights[bias] is None:
            raise Unfusable("the changed row of a parameter is not a unit of its product")
        terms.append(t.g.read(Access.CANDIDATE_AXIS, kind, t.program.table(Displaced(bias))))
    term = reduce(lambda a, b: t.g.apply(Fn.ADD, a, b), terms)
    if isinstance(product, Product):
        again = (product.args[0], product.units, product.weight, product.base)
        t.values[out] = Changed(t.g.product(*again, term), -1)
    else:  # an update by a column
        here = t.g.is_unit(Stretch(0, t.base(out).shape[1]))
        t.values[out] = Changed(t.g.select(here, t.g.apply(Fn.ADD, product, term), product), -1)
    t.program.exits.append(t.g.constant(True, Kind.I1))  # it adds to the base's values, too


def _shift(t: Translator, bias: int, out: int) -> None:
    """x·W + b with only the bias changed."""
    new = t.changed(bias).expr
    old = t.g.read(Access.AXIS, new.kind, t.program.table(Flat(bias)), new.domain)
    shift = t.g.apply(Fn.SUB, new, old)
    t.program.updated.add(out)
    t.values[out] = Changed(t.g.apply(Fn.ADD, t.matrix(out), shift), -1)


# -- events ------------------------------------------------------------------------------------


def _follow_events(planner: Planner, node: Node) -> None:
    """Each event adds a row of W."""
    left, right, bias = find_factors(node)
    if set(node.inputs) & planner.values.keys() != {left} or any(
        scale != 1 for scale in node.kwargs.values()
    ):
        raise Unfusable(f"{node.name}: another factor changes, or there is a scale")
    slot, layout = planner.slot(left)
    if layout.axis != 0 or layout.places.dim() != 1 or not slot.kind.is_float:
        raise Unfusable(f"{node.name} of something else than units")
    lanes, inputs = planner.program.lanes, len(layout.places)
    outputs = planner.base(node.outputs[0]).shape[1]
    row = pad(outputs, lanes)
    named = Layout(torch.arange(outputs), row)
    target = planner.new_slot(node.outputs[0], named, behind(slot))
    weight_of = torch.zeros(layout.size, dtype=torch.long)
    weight_of[layout.places] = torch.arange(inputs) * row
    words: list[Word] = [*slot_words(slot), *slot_words(target), layout.size // lanes]
    words += [Fixed(layout.named_bits(lanes)), as_index(weight_of)]
    words += [
        Table(("matrix", right, row), lambda v: fill(v(right), (0, row - outputs)).contiguous())
    ]
    write = partial(write_product, kind=slot.kind, vectors=row // lanes)
    planner.joint_stage(
        "product", write, words, target.level - 0.5, [slot, target], detail=row // lanes
    )
    if bias is None or planner.base(bias).dim() == 1:
        one = torch.zeros_like(layout.places)
        terms = Terms(layout.places, one, torch.zeros_like(named.places))
        restore_zeros(planner, slot, target, Sums(left, node.outputs[0], right, bias), terms)
    planner.put(node, target)


# -- entries -----------------------------------------------------------------------------------


def _count_multiply_adds(node: Node, base: Lookup) -> int:
    return int(base(node.inputs[-2]).shape[-1])


def _product(name: str) -> Operator:
    return Operator(
        name,
        column=_carry_column,
        examples=_carry_examples,
        apart=call_product,
        lanes=_lower,
        enters_lanes=True,
        stack=_lower_stack,
        events=_follow_events,
        factors=find_factors,
        takes_units=True,
        multiply_adds=_count_multiply_adds,
    )


OPERATORS = (
    _product("mm"),
    _product("addmm"),
    Operator(
        "bmm",
        column=_carry_column_of_batch,
        examples=run_apart(always),
        apart=call_batch_product,
        multiply_adds=_count_multiply_adds,
    ),
    Operator(
        "baddbmm",
        examples=run_apart(always),
        apart=call_batch_product,
        multiply_adds=_count_multiply_adds,
    ),
)
