"""Operators that act number by number: one rule per form of change serves all of them."""

from collections.abc import Mapping

from torch import Tensor

from hardstep.evaluation.events.elementwise import follow_elementwise
from hardstep.evaluation.fused.translate_elementwise import BUILD
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.columns import Column, Lookup, slices_of
from hardstep.evaluation.incremental.examples import Env, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node, Ref


def elementwise(name: str) -> Operator:
    """The entry of an operator that acts number by number."""
    return Operator(
        name,
        column=_carry_column,
        examples=run_apart(_broadcasts_by_example),
        events=follow_elementwise if name in BUILD else None,
        is_elementwise=True,
    )


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


_NAMES = """
    abs add addcdiv addcmul atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor ceil
    celu clamp clamp_max clamp_min clone copy copysign cos cosh div elu eq erf erfc exp
    expm1 floor floor_divide fmod frac ge gelu gt hardsigmoid hardswish hardtanh heaviside
    isfinite isinf isnan le leaky_relu lerp lift_fresh log log10 log1p log2 logical_and
    logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish mul nan_to_num
    ne neg pow reciprocal relu remainder round rsqrt rsub selu sgn sigmoid sign silu sin sinh
    softplus sqrt sub tan tanh threshold trunc where _to_copy xlogy
"""
OPERATORS = (
    *map(elementwise, _NAMES.split()),
    # Torch's resizes a result, and says so, unless all that it is given is batched.
    Operator("_prelu_kernel", needs_all_batched=True),
)
