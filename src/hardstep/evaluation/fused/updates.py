"""A sum with a product that was updated: the recorded sum is updated instead.

A product is followed as its base plus what a change adds. What else is added to it has a recorded
sum with that base, so the update goes there, and nothing is left to be added: gates of recurrent
layers, shortcuts. A column that is added lands at the candidate's unit.
"""

from typing import NamedTuple

from hardstep.evaluation.fused.expressions import (
    Access,
    Expr,
    Fn,
    IsUnit,
    Product,
    Read,
    Select,
    Stretch,
)
from hardstep.evaluation.fused.tables import Matrix, PartOf
from hardstep.evaluation.fused.translate import Changed, Translator
from hardstep.evaluation.trace.nodes import Node


class _Column(NamedTuple):
    """What a column is more than its base."""

    more: Expr
    units: Stretch  # among which it stands


def update_sum(t: Translator, node: Node) -> bool:
    """Follow a + b as an update of its recorded result, if one of them is an updated product."""
    for one, other in (node.inputs, node.inputs[::-1]) if len(node.inputs) == 2 else ():
        found = t.values.get(one)
        if not isinstance(found, Changed) or not isinstance(found.expr, Product):
            continue
        if t.uses[one] != 1 or t.base(one).shape != t.base(node.outputs[0]).shape:
            continue  # the product is needed as it is, too
        if t.base(one).dtype != t.base(node.outputs[0]).dtype or found.axis != -1:
            continue
        updated = _update(t, found.expr, other, node.outputs[0])
        if updated is not None:
            t.values[node.outputs[0]] = Changed(updated, -1)
            t.program.updated.add(node.outputs[0])
            return True
    return False


def _update(t: Translator, product: Product, other: int, out: int) -> Expr | None:
    change, *terms = product.args
    if other in t.values:
        column = None if other in t.vectors else _find_column(t, other)
        if column is None or column.units != product.units:
            return None
        terms = [t.g.apply(Fn.ADD, *terms, column.more)] if terms else [column.more]
    base = t.program.table(Matrix(out))
    return t.g.product(change, product.units, product.weight, base, *terms)


def _find_column(t: Translator, index: int) -> _Column | None:
    """A changed value as a column among units of its base."""
    found = t.values[index]
    if not isinstance(found, Changed) or found.axis != -1 or t.base(index).dim() != 2:
        return None
    if found.column:
        old = t.at_unit(index)
        t.leave_axis(found.expr, old)
        more = t.g.apply(Fn.SUB, found.expr, old)
        return _Column(more, Stretch(0, t.base(index).shape[1]))
    match found.expr:
        case Select(args=(IsUnit(units=units), new, Read(access=Access.AXIS_LANE) as old)):
            table = list(t.program.tables)[old.table]
            while isinstance(table, PartOf):
                table = table.whole
            at_unit = t.g.read(Access.UNIT_LANE, old.kind, t.program.table(table))
            return _Column(t.g.apply(Fn.SUB, new, at_unit), units)
    return None
