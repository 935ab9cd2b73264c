"""Operations that treat examples apart: only the examples that changed go through them.

An example is an index of axis 0, whether or not it is one of the batch. Changed examples of all
candidates form one long batch, and the operation runs on it as it is. A sum over examples is the
base's plus what the changed examples add.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.incremental.changes import (
    Change,
    Examples,
    Pairs,
    Stacked,
    column_to_examples,
)
from hardstep.evaluation.ops.columns import Column, Lookup, slices_of
from hardstep.evaluation.ops.vocabulary import ALONG_DIM, ELEMENTWISE, REDUCED_LOSSES
from hardstep.evaluation.trace.record import Node, Ref

Result = tuple[Change, ...] | None


def carry_examples(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """The changes of a node's results by examples, or nothing if they do not stay apart."""
    for index in node.inputs:
        change = env.get(index)
        if isinstance(change, Stacked):
            return None
        if change is not None and not _has_examples(base(index), change, pairs):
            return None
    if node.func is None:
        return None
    if node.name in ("mm", "addmm"):
        return _product(node, env, base, pairs)
    special = _SPECIAL.get(node.name)
    found = special(node, env, base, pairs) if special else None
    if found is not None:
        return found
    check = _broadcasts_by_example if node.name in ELEMENTWISE else _APART.get(node.name)
    table = _TABLES.get(node.name)
    if check is None or not check(node, base, pairs):
        return None
    if not _stay_in_front(node, env, base, pairs):
        return None
    if table is not None and {node.args[table].index} != set(node.inputs) & set(env):
        return None  # a shared table changed, not the examples that go through it
    first = base(node.outputs[0])
    if first.dim() < 1 or first.shape[0] != pairs.num_examples:
        return None
    return _apply(node, env, base, pairs)


def _has_examples(value: Tensor, change: Change, pairs: Pairs) -> bool:
    axis_free = not isinstance(change, Column) or change.axis != 0
    return value.dim() >= 1 and value.shape[0] == pairs.num_examples and axis_free


def gather_examples(index: int, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Tensor:
    """The examples of a changed or unchanged value at the pairs."""
    change = env.get(index)
    if isinstance(change, Examples):
        return change.values
    if isinstance(change, Column):
        return column_to_examples(base(index), change, pairs).values
    return pairs.examples_of(base(index))


def _apply(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """Run the operation on the long batch."""
    ndim = max(base(index).dim() for index in node.inputs if index in env)

    def operand(leaf: Ref) -> Tensor:
        value = base(leaf.index)
        has_examples = value.dim() == ndim and value.shape[0] == pairs.num_examples
        if leaf.index in env or (has_examples and node.name not in _TABLES):
            return gather_examples(leaf.index, env, base, pairs)
        return value

    args, kwargs = node.filled(operand)
    args = _resize(node, args, len(pairs.example))
    result = node.func(*args, **kwargs)
    outputs = result if isinstance(result, tuple | list) else (result,)
    return tuple(Examples(out) for out in outputs)


def _resize(node: Node, args: list[Any], num: int) -> list[Any]:
    """Shapes written out in the call follow the number of examples."""
    if node.name in ("view", "_unsafe_view", "reshape", "expand"):
        return [args[0], [num, *args[1][1:]], *args[2:]]
    if node.name == "native_group_norm":
        return [*args[:3], num, *args[4:]]
    return args


def _product(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """Examples of x times a shared matrix; a changed column of x is a rank-one update."""
    refs = [arg.index for arg in node.args if isinstance(arg, Ref)]
    left, right = refs[-2:]
    bias = refs[0] if node.name == "addmm" else None
    if right in env or bias in env or left not in env:
        return None
    if bias is not None and base(bias).dim() == 2 and base(bias).shape[0] != 1:
        return None
    change, matrix = env[left], base(right)
    scale = {"beta": 1, "alpha": 1} | dict(node.kwargs)
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


def _broadcasts_by_example(node: Node, base: Lookup, pairs: Pairs) -> bool:
    """Operands either have the examples as their axis 0 or are the same for all examples."""
    ndim = base(node.outputs[0]).dim()
    shared = (1, pairs.num_examples)
    return all(base(i).dim() < ndim or base(i).shape[0] in shared for i in node.inputs)


def _stay_in_front(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> bool:
    """Whether a changed value's examples are the result's, and every index has them all."""
    if node.name in ELEMENTWISE:
        ndim = base(node.outputs[0]).dim()
        return all(base(index).dim() == ndim for index in node.inputs if index in env)
    if node.name in ("gather", "scatter"):
        return all(base(index).shape[0] == pairs.num_examples for index in node.inputs)
    return True


def _dims(node: Node, base: Lookup) -> list[int] | None:
    """The dimensions an operation works along, counted from 0; nothing if it takes none."""
    arguments = node.func._schema.arguments
    names = [argument.name for argument in arguments]
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    dims = given.get("dim")
    if dims is None:
        return None
    ndim = base(node.inputs[0]).dim() + (node.name in ("unsqueeze", "stack"))
    return [d % ndim for d in (dims if isinstance(dims, list | tuple) else [dims])]


def _along(node: Node, base: Lookup, pairs: Pairs) -> bool:
    """An operation whose dimensions leave axis 0 alone."""
    dims = _dims(node, base)
    return dims is not None and len(dims) > 0 and 0 not in dims


def _keeps_leading(node: Node, base: Lookup, pairs: Pairs) -> bool:
    """A view or expansion that leaves axis 0 as it is."""
    before, after = base(node.inputs[0]).shape, base(node.outputs[0]).shape
    if node.name == "expand" and len(before) != len(after):
        return False
    shaped = isinstance(node.args[1], list | tuple)
    return shaped and len(after) > 0 and before[0] == after[0] == pairs.num_examples


def _transposes(node: Node, base: Lookup, pairs: Pairs) -> bool:
    ndim = base(node.inputs[0]).dim()
    if node.name == "permute":
        return bool(node.args[1][0] % ndim == 0)
    return 0 not in (node.args[1] % ndim, node.args[2] % ndim)


def _always(node: Node, base: Lookup, pairs: Pairs) -> bool:
    return True


def _pads_within_examples(node: Node, base: Lookup, pairs: Pairs) -> bool:
    return len(node.args[1]) // 2 < base(node.inputs[0]).dim()


def _closing_sum(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """Sum or mean over axis 0 (and others): base plus the difference of the changed examples."""
    index = node.inputs[0]
    value = base(index)
    dims = _dims(node, base) or list(range(value.dim()))
    if 0 not in dims or not value.is_floating_point():
        return None
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    new = gather_examples(index, env, base, pairs)
    inner = [d for d in dims if d != 0]
    difference = (new - value[pairs.example]).double()
    if inner:
        difference = difference.sum(dim=inner, keepdim=keep)
    count = 1 if node.name == "sum" else value.numel() // base(node.outputs[0]).numel()
    total = difference.new_zeros(pairs.num_candidates, *difference.shape[1:])
    total.index_add_(0, pairs.candidate, difference)
    if keep:
        total = total.unsqueeze(1)
    result = base(node.outputs[0]).double() + total / count
    return (Stacked(result.to(base(node.outputs[0]).dtype)),)


def _nll(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """Negative log-likelihood: the changed examples' losses replace the base's."""
    scores, target, weight, reduction, ignore = node.args[:5]
    if set(node.inputs[1:]) & set(env):
        return None
    labels, class_weight = base(target.index), base(weight.index) if weight else None
    if labels.dim() != 1 or reduction == 0:
        return None
    one = torch.ops.aten.nll_loss_forward.default
    new = gather_examples(scores.index, env, base, pairs)
    old = base(scores.index)[pairs.example]
    chosen = labels[pairs.example]
    difference = (
        one(new, chosen, class_weight, 0, ignore)[0].double()
        - one(old, chosen, class_weight, 0, ignore)[0].double()
    )
    total = difference.new_zeros(pairs.num_candidates).index_add_(0, pairs.candidate, difference)
    weight_sum = base(node.outputs[1]).double()
    result = base(node.outputs[0]).double() + (total / weight_sum if reduction == 1 else total)
    same = base(node.outputs[1]).expand(pairs.num_candidates)
    return (Stacked(result.to(new.dtype)), Stacked(same))


def _reduced_loss(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """An element-wise loss and its mean or sum."""
    place = REDUCED_LOSSES[node.name]
    operands = [base(index) for index in node.inputs]
    if any(value.shape != operands[0].shape for value in operands):
        return None
    reduction = node.args[place] if len(node.args) > place else 1
    if reduction == 0:
        return _apply(node, env, base, pairs)

    def loss(values: list[Tensor]) -> Tensor:
        head: list[Any] = [*values, *[None] * (place - len(values))]
        rest = node.args[place + 1 :]
        each = node.func(*head, 0, *rest).double()
        return each.reshape(len(each), -1).sum(dim=1)  # type: ignore[no-any-return]

    new = loss([gather_examples(index, env, base, pairs) for index in node.inputs])
    old = loss([value[pairs.example] for value in operands])
    total = new.new_zeros(pairs.num_candidates).index_add_(0, pairs.candidate, new - old)
    count = operands[0].numel() if reduction == 1 else 1
    result = base(node.outputs[0]).double() + total / count
    return (Stacked(result.to(operands[0].dtype)),)


def _look_up(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """table[indices] with changed indices and a shared table."""
    table, indices = node.args[:2]
    if table.index in env or len(indices) != 1 or indices[0] is None:
        return None
    if base(indices[0].index).dtype == torch.bool:
        return None
    places = gather_examples(indices[0].index, env, base, pairs)
    return (Examples(base(table.index)[places]),)


def _convolve_channel(node: Node, env: Mapping[int, Change], base: Lookup, pairs: Pairs) -> Result:
    """Pictures of which one channel changed: the base's result and what the difference adds."""
    source, weight = node.args[0].index, node.args[1].index
    column, transposed, groups = env.get(source), node.args[6], node.args[8]
    if not isinstance(column, Column) or column.axis != 1 or transposed or groups != 1:
        return None
    result = base(node.outputs[0])
    # What is added to infinity is lost, and a candidate may well be finite there.
    if set(node.inputs[1:]) & set(env) or not bool(result.isfinite().all()):
        return None
    difference = column.slices - slices_of(base(source), 1, column.unit)
    new = difference[pairs.candidate, pairs.example].unsqueeze(1)
    units, counts = torch.unique_consecutive(column.unit[pairs.candidate], return_counts=True)
    filters = base(weight).movedim(1, 0)[units].unsqueeze(2)
    parts = zip(torch.split(new, counts.tolist()), filters, strict=True)
    added = [node.func(part, own, None, *node.args[3:]) for part, own in parts]
    return (Examples(pairs.examples_of(result) + torch.cat(added)),)


_SPECIAL = {
    "convolution": _convolve_channel,
    "index": _look_up,
    "sum": _closing_sum,
    "mean": _closing_sum,
    "nll_loss_forward": _nll,
    **dict.fromkeys(REDUCED_LOSSES, _reduced_loss),
}
# Operations with shared tables: the position of the one argument that may hold examples.
_TABLES = {
    "convolution": 0,
    "native_layer_norm": 0,
    "native_batch_norm": 0,
    "native_group_norm": 0,
    "index_select": 0,
    "embedding": 1,
}


def _normalizes_within_examples(node: Node, base: Lookup, pairs: Pairs) -> bool:
    return len(node.args[1]) < base(node.inputs[0]).dim()


def _fixed_statistics(node: Node, base: Lookup, pairs: Pairs) -> bool:
    return node.args[5] is False


_Check = Callable[[Node, Lookup, Pairs], bool]
_APART: dict[str, _Check] = {
    **dict.fromkeys(ALONG_DIM, _along),
    **dict.fromkeys(("view", "_unsafe_view", "expand"), _keeps_leading),
    **dict.fromkeys(("permute", "transpose"), _transposes),
    **dict.fromkeys(("avg_pool2d", "_adaptive_avg_pool2d", "bmm", "convolution"), _always),
    **dict.fromkeys(("embedding", "max_pool2d_with_indices", "native_group_norm"), _always),
    "constant_pad_nd": _pads_within_examples,
    "native_batch_norm": _fixed_statistics,
    "native_layer_norm": _normalizes_within_examples,
}
