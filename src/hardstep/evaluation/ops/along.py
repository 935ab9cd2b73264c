"""Operations along other axes than the one on which a column stands: its slices go through alone.

Slices (n, *shape without the axis) have as many axes as the whole value, and candidates in front.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from hardstep.evaluation.ops.vocabulary import ALONG_DIM, PERMUTING, POOLS
from hardstep.evaluation.trace.record import Node

Lookup = Callable[[int], Tensor]
Slices = list[tuple[int, Tensor]]  # of every result: the axis, and the slices

# They read other values beside the one they go along, or make an axis.
_OTHERWISE = {"cat", "stack", "gather", "scatter", "unsqueeze", "squeeze"}
BESIDE = (ALONG_DIM - _OTHERWISE) | PERMUTING


def find_dims(node: Node, base: Lookup) -> list[int] | None:
    """The dimensions an operation works along, counted from 0; nothing if it takes none."""
    dims = _find_argument(node)[2]
    if dims is None:
        return None
    ndim = base(node.inputs[0]).dim() + (node.name in ("unsqueeze", "stack"))
    return [dim % ndim for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def _find_argument(node: Node) -> tuple[int, str, Any]:
    """Place, name and value of the argument that says along which dimensions."""
    for place, argument in enumerate(node.func._schema.arguments):
        if argument.name in ("dim", "dims"):
            given = argument.default_value if argument.has_default_value() else None
            if place < len(node.args):
                given = node.args[place]
            return place, argument.name, node.kwargs.get(argument.name, given)
    return 0, "", None


def run_beside(node: Node, base: Lookup, axis: int, slices: Tensor) -> Slices | None:
    """An operation along given dimensions, if the column's axis is none of them."""
    value, dims = base(node.inputs[0]), find_dims(node, base)
    if not dims or axis in dims:
        return None
    place, name, given = _find_argument(node)
    shifted: Any = [dim - (dim > axis) + 1 for dim in dims]
    if isinstance(given, int):
        (shifted,) = shifted
    args, kwargs = node.filled(lambda ref: base(ref.index))
    args[0] = slices
    if place < len(args):
        args[place] = shifted
    else:
        kwargs[name] = shifted
    result = node.func(*args, **kwargs)
    gone = sum(dim < axis for dim in dims)
    axes = [axis - gone * (base(out).dim() < value.dim()) for out in node.outputs]
    return _list_results(result, axes)


def run_pool(node: Node, base: Lookup, axis: int, slices: Tensor) -> Slices | None:
    """Windows over the last axes; what stands in front of them is treated apart."""
    value = base(node.inputs[0])
    if axis >= value.dim() - POOLS[node.name]:
        return None
    result = node.func(slices, *node.args[1:], **node.kwargs)
    return _list_results(result, [axis] * len(node.outputs))


def _list_results(result: Any, axes: list[int]) -> Slices:
    results = result if isinstance(result, tuple | list) else [result]
    return list(zip(axes, results, strict=True))
