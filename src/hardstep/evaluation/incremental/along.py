"""Operations along other axes than the one on which a column stands: its slices go through alone.

Slices (n, *shape without the axis) have as many axes as the whole value, and candidates in front.
"""

from collections.abc import Mapping
from typing import Any

from hardstep.evaluation.incremental.columns import Column, Columns, Lookup
from hardstep.evaluation.trace.nodes import Node


def find_dims(node: Node, base: Lookup, new_axes: int = 0) -> list[int] | None:
    """The dimensions an operation works along, counted from 0; nothing if it takes none."""
    dims = find_dim_argument(node)[2]
    if dims is None:
        return None
    ndim = base(node.inputs[0]).dim() + new_axes
    return [dim % ndim for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def find_dim_argument(node: Node) -> tuple[int, str, Any]:
    """Place, name and value of the argument that says along which dimensions."""
    for place, argument in enumerate(node.func._schema.arguments):
        if argument.name in ("dim", "dims"):
            given = argument.default_value if argument.has_default_value() else None
            if place < len(node.args):
                given = node.args[place]
            return place, argument.name, node.kwargs.get(argument.name, given)
    return 0, "", None


def find_alone(node: Node, columns: Mapping[int, Column]) -> Column | None:
    """The column of the first operand, if nothing else changes."""
    return columns.get(node.inputs[0]) if len(columns) == 1 else None


def carry_beside(node: Node, columns: Mapping[int, Column], base: Lookup) -> Columns | None:
    """An operation along given dimensions, if the column's axis is none of them."""
    column, dims = find_alone(node, columns), find_dims(node, base)
    if column is None or not dims or column.axis in dims:
        return None
    axis, value = column.axis, base(node.inputs[0])
    place, name, given = find_dim_argument(node)
    shifted: Any = [dim - (dim > axis) + 1 for dim in dims]
    if isinstance(given, int):
        (shifted,) = shifted
    args, kwargs = node.filled(lambda ref: base(ref.index))
    args[0] = column.slices
    if place < len(args):
        args[place] = shifted
    else:
        kwargs[name] = shifted
    result = node.func(*args, **kwargs)
    gone = sum(dim < axis for dim in dims)
    axes = [axis - gone * (base(out).dim() < value.dim()) for out in node.outputs]
    results = result if isinstance(result, tuple | list) else [result]
    return tuple(Column(at, column.unit, slices) for at, slices in zip(axes, results, strict=True))
