"""Operations that keep a change within one column: a batch-long vector instead of a matrix."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.evaluation.ops.along import BESIDE, Slices, find_dims, run_beside, run_pool
from hardstep.evaluation.ops.vocabulary import ELEMENTWISE, POOLS
from hardstep.evaluation.trace.record import Node, Ref

Lookup = Callable[[int], Tensor]  # base value by number


@dataclass(frozen=True)
class Column:
    """`slices[i]` stands at index `unit[i]` of `axis` for candidate i."""

    axis: int
    unit: Tensor  # (n,)
    slices: Tensor  # (n, *shape without axis)


Rule = Callable[[Node, Mapping[int, Column], Lookup], "Column | tuple[Column, ...] | None"]


def slices_of(base: Tensor, axis: int, unit: Tensor) -> Tensor:
    """The base's slices at each candidate's unit, (n, *shape without axis)."""
    return base.movedim(axis, 0)[unit]


def column_rule(node: Node, env: Mapping[int, object], base: Lookup) -> tuple[Column, ...] | None:
    """The changes of a node's results as columns, or nothing if they do not stay columns."""
    columns: dict[int, Column] = {}
    for index in node.inputs:
        change = env.get(index)
        if isinstance(change, Column):
            columns[index] = change
        elif change is not None:
            return None
    if not _agree([column.unit for column in columns.values()]):
        return None
    rule = _elementwise if node.name in ELEMENTWISE else _RULES.get(node.name)
    found = rule(node, columns, base) if rule else None
    return (found,) if isinstance(found, Column) else found


def parameter_rule(
    node: Node, env: Mapping[int, Column], base: Lookup
) -> tuple[Column, ...] | None:
    """The same of parameters, if a changed row also keeps its number: kernels know one of each."""
    changes = column_rule(node, env, base)
    source, row = next(iter(env.items()))
    num = base(source).shape[row.axis]
    outputs = zip(node.outputs, changes or (), strict=False)
    if any(base(out).shape[change.axis] != num for out, change in outputs):
        return None
    return changes


def _agree(units: list[Tensor]) -> bool:
    """Whether all columns stand at the same units; parts of one axis need not."""
    return all(unit is units[0] or torch.equal(unit, units[0]) for unit in units)


def _align(column: Column, ndim: int, own: int) -> Column:
    """The column of a value broadcast to `ndim` dimensions (new ones lead)."""
    lead = ndim - own
    if lead == 0:
        return column
    slices = column.slices.reshape(len(column.unit), *[1] * lead, *column.slices.shape[1:])
    return Column(column.axis + lead, column.unit, slices)


def _elementwise(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
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


def _transpose(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    (index,) = node.inputs
    column, ndim = columns[index], base(index).dim()
    order = list(range(ndim))
    if node.name == "permute":
        order = [d % ndim for d in node.args[1]]
    elif ndim == 2 and node.name == "t":
        order = [1, 0]
    elif node.name == "transpose":
        a, b = (d % ndim for d in node.args[1:3])
        order[a], order[b] = order[b], order[a]
    axis = order.index(column.axis)
    # Position of an old dimension within a slice, which lacks the changed axis.
    within = [d - (d > column.axis) for d in order if d != column.axis]
    slices = column.slices.permute(0, *[d + 1 for d in within])
    return Column(axis, column.unit, slices)


def _reshape(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """A view that leaves the changed axis a dimension of its own."""
    (index,) = node.inputs
    if base(index).dtype != base(node.outputs[0]).dtype:
        return None  # the same bits, read as other numbers
    column, old = columns[index], base(index).shape
    new = base(node.outputs[0]).shape
    before = old[: column.axis].numel()
    for axis, size in enumerate(new):
        if size == old[column.axis] and new[:axis].numel() == before:
            rest = [*new[:axis], *new[axis + 1 :]]
            return Column(axis, column.unit, column.slices.reshape(len(column.unit), *rest))
    return None


def _product(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """x·W with one column of W changed, or only the bias."""
    refs = [arg.index for arg in node.args if isinstance(arg, Ref)]
    left, right = refs[-2:]
    bias = refs[0] if node.name == "addmm" else None
    scale = {"beta": 1, "alpha": 1} | dict(node.kwargs)
    if left in columns or base(node.outputs[0]).dim() != 2:
        return None
    moved = columns.get(bias) if bias is not None else None
    if bias is not None and bias in columns and base(bias).dim() != 1:
        return None
    if bias is not None and base(bias).dim() == 2 and base(bias).shape[0] != 1:
        return None  # a matrix is added, not an entry per unit
    weight = columns.get(right)
    if weight is None:
        assert moved is not None
        assert bias is not None
        shift = moved.slices - base(bias)[moved.unit]
        old = slices_of(base(node.outputs[0]), 1, moved.unit)
        return Column(1, moved.unit, old + scale["beta"] * shift[:, None])
    if weight.axis != 1:
        return None
    slices = torch.mm(weight.slices, base(left).T)
    if node.name == "addmm":
        slices = slices if scale["alpha"] == 1 else scale["alpha"] * slices
        entry = moved.slices if moved else _bias_entries(base(refs[0]), weight.unit)
        slices = slices + scale["beta"] * entry[:, None]
    return Column(1, weight.unit, slices)


def _bias_entries(bias: Tensor, unit: Tensor) -> Tensor:
    return bias.reshape(-1)[unit] if bias.numel() > 1 else bias.reshape(-1).expand(len(unit))


def _convolution(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    """One output channel of a convolution: the candidates' filters become its channels."""
    source, weight, bias = node.args[:3]
    transposed, groups = node.args[6], node.args[8]
    changed = columns.get(weight.index)
    if source.index in columns or transposed:
        return None
    if changed is None:
        moved = columns[bias.index]
        shift = moved.slices - base(bias.index)[moved.unit]
        old = slices_of(base(node.outputs[0]), 1, moved.unit)
        return Column(1, moved.unit, old + shift.reshape(-1, *[1] * (old.dim() - 1)))
    if changed.axis != 0:
        return None
    entries = None
    if isinstance(bias, Ref):
        moved_bias = columns.get(bias.index)
        entries = moved_bias.slices if moved_bias else base(bias.index)[changed.unit]
    own = changed.unit // (base(weight.index).shape[0] // groups)
    slices = convolve_in_groups(node, base(source.index), changed.slices, entries, own)
    return Column(1, changed.unit, slices.movedim(1, 0))


def convolve_in_groups(
    node: Node, pictures: Tensor, filters: Tensor, entries: Tensor | None, own: Tensor
) -> Tensor:
    """Each filter over the channels of its group, `own`; (examples, filters, *pixels)."""
    stride, padding, dilation, _, output_padding, groups = node.args[3:9]

    def convolve(chosen: Tensor, pieces: Tensor, bias: Tensor | None, parts: int) -> Tensor:
        return node.func(  # type: ignore[no-any-return]
            chosen, pieces, bias, stride, padding, dilation, False, output_padding, parts
        )

    if groups == 1:
        return convolve(pictures, filters, entries, 1)
    each = pictures.shape[1] // groups
    used, counts = torch.unique_consecutive(own, return_counts=True)
    parts = pictures.reshape(len(pictures), groups, each, *pictures.shape[2:])
    if len(set(counts.tolist())) == 1:  # one convolution, with the groups that are used
        return convolve(parts[:, used].flatten(1, 2), filters, entries, len(used))
    bounds = [0, *counts.cumsum(0).tolist()]
    pieces = [
        convolve(parts[:, group], filters[a:b], None if entries is None else entries[a:b], 1)
        for group, a, b in zip(used.tolist(), bounds, bounds[1:], strict=False)
    ]
    return torch.cat(pieces, dim=1)


def _unsqueeze(node: Node, columns: Mapping[int, Column], base: Lookup) -> Column | None:
    (index,) = node.inputs
    column, ndim = columns[index], base(index).dim()
    dim = node.args[1] % (ndim + 1)
    axis = column.axis + (dim <= column.axis)
    place = dim - (dim > axis)
    return Column(axis, column.unit, column.slices.unsqueeze(place + 1))


def _apart(run: Callable[[Node, Lookup, int, Tensor], Slices | None]) -> Rule:
    """An operation that leaves the changed axis alone."""

    def rule(node: Node, columns: Mapping[int, Column], base: Lookup) -> tuple[Column, ...] | None:
        column = columns.get(node.inputs[0])
        if column is None or len(columns) != 1:
            return None
        found = run(node, base, column.axis, column.slices)
        if found is None:
            return None
        return tuple(Column(axis, column.unit, slices) for axis, slices in found)

    return rule


def _narrow(
    node: Node, columns: Mapping[int, Column], base: Lookup
) -> tuple[Column, ...] | Column | None:
    """Parts of an axis: the candidates whose unit is not in a part change nothing of it."""
    ((index, column),) = columns.items()
    if find_dims(node, base) != [column.axis]:
        return _beside(node, columns, base)
    sizes = [base(out).shape[column.axis] for out in node.outputs]
    starts, step = [sum(sizes[:number]) for number in range(len(sizes))], 1
    if node.name == "slice":
        bounds = slice(*[*node.args[2:5], None, None, None][:3])
        start, _, step = bounds.indices(base(index).shape[column.axis])
        starts = [start]
    if 0 in sizes:
        return None
    parts = zip(node.outputs, starts, strict=True)
    return tuple(_take_part(column, base(out), start, step) for out, start in parts)


def _take_part(column: Column, part: Tensor, start: int, step: int) -> Column:
    """The column in every `step`-th unit from `start` on, or one that is as in the base."""
    size = part.shape[column.axis]
    place = (column.unit - start) // step
    inside = (place >= 0) & (place < size) & ((column.unit - start) % step == 0)
    # Wherever else it is put, nothing changes; so, columns of equal parts stand at equal units.
    unit = place % size
    old = slices_of(part, column.axis, unit)
    inside = inside.reshape(-1, *[1] * (old.dim() - 1))
    return Column(column.axis, unit, torch.where(inside, column.slices, old))


_beside = _apart(run_beside)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(BESIDE, _beside),
    **dict.fromkeys(("slice", "split", "split_with_sizes"), _narrow),
    **dict.fromkeys(POOLS, _apart(run_pool)),
    "squeeze": _reshape,
    "t": _transpose,
    "transpose": _transpose,
    "permute": _transpose,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "unsqueeze": _unsqueeze,
    "mm": _product,
    "addmm": _product,
    "convolution": _convolution,
}
