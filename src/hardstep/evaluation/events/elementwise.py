"""Element-wise operations and views of changed values."""

from typing import Any

from torch import Tensor

from hardstep.evaluation.events.layouts import follow_view
from hardstep.evaluation.events.moves import align, widen
from hardstep.evaluation.events.planner import Planner, Value
from hardstep.evaluation.fused.expressions import Expr, Unfusable
from hardstep.evaluation.fused.translate import Make
from hardstep.evaluation.trace.nodes import Node, Ref


def follow_view_of(planner: Planner, node: Node) -> None:
    """The same numbers under other names."""
    (index,) = node.inputs
    value = planner.values[index]

    def view(numbers: Tensor) -> Any:
        args, kwargs = node.filled(lambda _: numbers)
        return node.func(*args, **kwargs)

    layouts = follow_view(value.layout, planner.program.examples, view)
    if len(layouts) != len(node.outputs):
        raise Unfusable(f"{node.name} mixes examples")
    for out, layout in zip(node.outputs, layouts, strict=True):
        planner.values[out] = Value(value.holder, layout)


def follow_elementwise(planner: Planner, node: Node, make: Make) -> None:
    """Operands that change have to stand at the same places."""
    out = planner.base(node.outputs[0])
    moved = [index for index in dict.fromkeys(node.inputs) if index in planner.values]
    found = {index: _fit(planner, index, node.outputs[0]) for index in moved}
    # What changed last is largest: what is behind a convolution has all channels.
    layout = max(found.values(), key=lambda value: value.level).layout
    aligned = {index: align(planner, value, layout) for index, value in found.items()}
    group = planner.group(list(aligned.values()), layout)
    group.nodes += 1

    def operand(ref: Ref) -> Expr:
        if ref.index in aligned:
            return planner.read_changed(group, aligned[ref.index])
        return planner.read_unchanged(group, ref.index, out, layout)

    planner.hold(node, make(node, planner.base, group.graph, operand), group, layout)


def _fit(planner: Planner, index: int, out: int) -> Value:
    """A changed operand in the shape of the result."""
    value, shape = planner.values[index], planner.base(out).shape
    if planner.base(index).shape == shape and value.layout.is_unique:
        return value
    return widen(planner, index, out)
