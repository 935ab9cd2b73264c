"""Columns: what an operation does to the slice of one unit is what it does to the whole value."""

import pytest
import torch

from hardstep.evaluation.incremental.columns import Column, carry_columns, carry_parameters
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.nodes import Node, Ref

aten = torch.ops.aten
SHAPE, CANDIDATES = (3, 4, 6, 6), 5
# An operation, its arguments behind the value, and the axes on which a column stays one.
ALONG = {
    "amax": (aten.amax.default, ([1],), [0, 2, 3]),
    "mean, keepdim": (aten.mean.dim, ([1, 2, 3], True), [0]),
    "sum over examples": (aten.sum.dim_IntList, ([0],), [1, 2, 3]),
    "max and where it is": (aten.max.dim, (1,), [0, 2, 3]),
    "min, keepdim": (aten.min.dim, (-1, True), [0, 1, 2]),
    "std": (aten.std.correction, ([2, 1],), [0, 3]),
    "var and mean": (aten.var_mean.correction, ([2, 3],), [0, 1]),
    "norm": (aten.linalg_vector_norm.default, (2, [1, 2, 3], True), [0]),
    "argmax": (aten.argmax.default, (1, True), [0, 2, 3]),
    "argmax of everything": (aten.argmax.default, (), []),
    "softmax": (aten._softmax.default, (1, False), [0, 2, 3]),
    "running sum": (aten.cumsum.default, (2,), [0, 1, 3]),
    "two largest": (aten.topk.default, (2,), [0, 1, 2]),
    "one of an axis": (aten.select.int, (1, -1), [0, 2, 3]),
    "some of an axis": (aten.slice.Tensor, (1, 1, 3), [0, 1, 2, 3]),
    "the last of an axis": (aten.slice.Tensor, (2, -3), [0, 1, 2, 3]),
    "every second": (aten.slice.Tensor, (3, 1, 99, 2), [0, 1, 2, 3]),
    "none of an axis": (aten.slice.Tensor, (1, 2, 2), [0, 2, 3]),
    "parts": (aten.split.Tensor, (4, 2), [0, 1, 2, 3]),
    "parts of given sizes": (aten.split_with_sizes.default, ([1, 3], 1), [0, 1, 2, 3]),
    "one by one": (aten.unbind.int, (1,), [0, 2, 3]),
    "backwards": (aten.flip.default, ([1, 2],), [0, 3]),
    "windows": (
        aten.max_pool2d_with_indices.default, ([2, 2], [2, 2], [1, 1], [1, 1], True), [0, 1]),
    "means": (aten.avg_pool2d.default, ([3, 3], [2, 2], [1, 1], True, False), [0, 1]),
    "means to a size": (aten._adaptive_avg_pool2d.default, ([2, 3],), [0, 1]),
    "maxima to a size": (aten.adaptive_max_pool2d.default, ([4, 3],), [0, 1]),
    "windows in a line": (aten.avg_pool1d.default, ([2],), [0, 1]),
    "windows in space": (aten.max_pool3d_with_indices.default, ([2, 2, 2],), [0, 1]),
    "means in space": (
        aten.avg_pool3d.default, ([2, 2, 2], [1, 1, 1], [1, 1, 1], False, True, 3), [0, 1]),
    "means to a size in space": (aten._adaptive_avg_pool3d.default, ([1, 2, 2],), [0, 1]),
    "maxima to a size in space": (aten.adaptive_max_pool3d.default, ([1, 2, 2],), [0, 1]),
}  # fmt: skip


def draw(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def run(func, value, args) -> tuple[torch.Tensor, ...]:
    result = func(value, *args)
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def put(value: torch.Tensor, column: Column, candidate: int) -> torch.Tensor:
    """A value with a candidate's column."""
    new = value.clone()
    new.movedim(column.axis, 0)[column.unit[candidate]] = column.slices[candidate]
    return new


def carry(func, value, args, column, rule=carry_columns):
    """The columns of the results, and the results without a change."""
    values = (value, *run(func, value, args))
    name, outputs = func.overloadpacket.__name__, tuple(range(1, len(values)))
    node = Node(name, func, (Ref(0), *args), {}, (0,), outputs)
    return rule(node, {0: column}, values.__getitem__, REGISTRY), values[1:]


def shape_of(func) -> tuple[int, ...]:
    name = func.overloadpacket.__name__
    return (3, 4, 6) if "1d" in name else (3, 4, 2, 6, 6) if "3d" in name else SHAPE


@pytest.mark.parametrize("name", ALONG)
def test_a_column_beside_the_axes_of_an_operation_stays_one(name):
    func, args, expected = ALONG[name]
    value, kept = draw(*shape_of(func)), []
    for axis, size in enumerate(value.shape):
        others = [side for dim, side in enumerate(value.shape) if dim != axis]
        column = Column(axis, torch.arange(CANDIDATES) % size, draw(CANDIDATES, *others))
        found, old = carry(func, value, args, column)
        if found is None:
            continue
        kept.append(axis)
        for candidate in range(CANDIDATES):
            plain = run(func, put(value, column, candidate), args)
            for base, change, whole in zip(old, found, plain, strict=True):
                torch.testing.assert_close(put(base, change, candidate), whole)
    assert kept == expected


def test_columns_at_different_units_are_not_combined():
    value, unit = draw(5, 6), torch.tensor([0, 3])
    columns = {0: Column(1, unit, draw(2, 5)), 1: Column(1, unit + 1, draw(2, 5))}
    func = aten.add.Tensor
    node = Node("add", func, (Ref(0), Ref(1)), {}, (0, 1), (2,))
    values = (value, value, value + value)
    assert carry_columns(node, columns, values.__getitem__, REGISTRY) is None
    columns[1] = Column(1, unit.clone(), draw(2, 5))
    assert carry_columns(node, columns, values.__getitem__, REGISTRY) is not None


def test_rows_of_parameters_that_get_another_number_are_left_to_others():
    """A kernel knows a candidate's unit by one number."""
    value, column = draw(8, 6), Column(0, torch.tensor([1, 5]), draw(2, 6))
    part, func = (1, 4), aten.slice.Tensor
    assert carry(func, value, (1, *part), column, carry_parameters)[0] is not None
    assert carry(func, value, (0, *part), column, carry_columns)[0] is not None
    assert carry(func, value, (0, *part), column, carry_parameters)[0] is None
