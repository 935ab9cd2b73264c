"""Running compiled passes over rows: where they read and write, and a pass that compares rows."""

from collections.abc import Container, Mapping, Sequence
from functools import cache

import torch
from torch import Size, Tensor

from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.expressions import KINDS, Access, Fn, Kind, Reduction
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.gathered.passes import LEAST_NUMBERS, Pass, load
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.row_code import Output, write_pass
from hardstep.evaluation.gathered.scene import Part
from hardstep.evaluation.trace.nodes import Node

DTYPES = {kind: dtype for dtype, kind in KINDS.items()}


def run_pass(
    read: Reader,
    made: Pass,
    nodes: Sequence[Node],
    parts: Mapping[int, Part],
    spent: Container[int] = (),
) -> int:
    """Compute what is needed of the results of the nodes of a pass; returns the bytes moved.

    Args:
        read: Values, to which results are added.
        made: The pass.
        nodes: Its nodes.
        parts: What is needed of values.
        spent: Values that nobody reads any more; a result may take the place of one.
    """
    tables: list[Tensor] = []
    strides: list[int] = []
    for table in made.tables:
        read.asked, read.out = parts[nodes[table.node].outputs[0]]
        value, steps = _find_strides(load(read, table), made.rows, read, table.like)
        tables.append(value)
        strides += steps
    results = []
    for one in made.written:
        read.asked, read.out = parts[nodes[one.node].outputs[0]]
        shape, dtype = (*read.lead, *read.own_shape(one.index)), DTYPES[one.kind]
        place = _find_place(read, made, tables, spent, shape, dtype)
        result = torch.empty(shape, dtype=dtype) if place is None else place.reshape(shape)
        spent = spent if place is None else ()
        each = result.stride(1)
        strides += [result.stride(0), each, 0 if one.summed else each // made.rows]
        results.append((one, result, read.out))
    num, examples = read.lead[0] * read.lead[1], read.lead[1]
    given = [torch.tensor(strides), *tables, *(result for _, result, _ in results)]
    if num:
        run_kernel(made.text, given, num, examples, made.rows, 0)
    for one, result, cut in results:
        read.put(one.index, result, cut)
        read.fresh.add(one.index)
    return sum(table.nbytes for table in given)


def _find_place(
    read: Reader,
    made: Pass,
    tables: Sequence[Tensor],
    spent: Container[int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Tensor | None:
    """A value that is not needed any more, of the size of a result; rows are read, then written."""
    for table, value in zip(made.tables, tables, strict=True):
        whole = table.part in ("", "base")
        if not whole or table.index not in spent or not read.is_alone(table.index):
            continue
        same = value.numel() == Size(shape).numel() and value.dtype == dtype
        if same and value.is_contiguous() and read.shares(table.index, value):
            return value
    return None


def _find_strides(value: Tensor, rows: int, read: Reader, like: int) -> tuple[Tensor, list[int]]:
    """A value to be read by candidate, example and row, and how far these are from the next."""
    ndim = 2 + len(read.scene.shape(like))
    value = value.reshape([1] * (ndim - value.dim()) + list(value.shape))
    inner = value.shape[2:-1].numel()
    if inner not in (1, rows):
        value = value.expand(*value.shape[:2], *read.own_shape(like)[:-1], value.shape[-1])
        inner = rows
    value = value.reshape(*value.shape[:2], inner, value.shape[-1])
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        value = value.contiguous()
    steps = [value.stride(axis) if value.shape[axis] > 1 else 0 for axis in range(3)]
    return value, steps


def find_differing(values: Tensor, base: Tensor) -> Tensor:
    """(n, examples, rows): whether a row of (n, examples, rows, numbers) is not the base's."""
    kind, (num, examples, rows, size) = KINDS.get(values.dtype), values.shape
    if kind is None or not kind.is_float or size < LEAST_NUMBERS or not values.numel():
        return (values != base).any(dim=3)
    values, base = values.contiguous(), base.contiguous()
    result = torch.empty(num, examples, rows, dtype=values.dtype)
    each = rows * size
    strides = [examples * each, each, size, 0, each, size, examples * rows, rows, 1]
    given = [torch.tensor(strides), values, base, result]
    run_kernel(_compare_rows(kind, size), given, num * examples, examples, rows, 0)
    return result != 0


@cache
def _compare_rows(kind: Kind, size: int) -> str:
    g = Graph()
    new, old = (g.read(Access.LANE, kind, table, size) for table in (0, 1))
    one, zero = (g.constant(number, kind) for number in (1.0, 0.0))
    differs = g.select(g.apply(Fn.NE, new, old), one, zero)
    return write_pass(size, [kind, kind], [Output(g.reduce(Reduction.MAX, differs))])
