"""Operators that put numbers elsewhere, or in several places: concatenation, padding, copies."""

from dataclasses import replace

import torch

from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.stacks import check_part, keep_stack
from hardstep.evaluation.fused.states import keep_row
from hardstep.evaluation.fused.translate import Changed, Stack, Translator, find_argument
from hardstep.evaluation.gathered.along import call_along, call_padding, join_values
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import Env, along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node


def _lower_stack(t: Translator, node: Node) -> None:
    """Values (examples, units) or (examples,) along a new axis."""
    out = node.outputs[0]
    axis = find_argument(node, 1, "dim", 0) % t.base(out).dim()
    keep_stack(t, out, axis, [check_part(t, node, ref.index) for ref in node.args[0]])


def _lower_cat(t: Translator, node: Node) -> None:
    """Stacks one after the other, and values whose axis there has size 1."""
    out = node.outputs[0]
    ndim = t.base(out).dim()
    axis = find_argument(node, 1, "dim", 0) % ndim
    if axis == ndim - 1 and t.base(out).shape[0] == t.program.num_examples and ndim == 2:
        _join_units(t, node)
        return
    parts: list[Changed | None] = []
    for index in (ref.index for ref in node.args[0]):
        found, shape = t.values.get(index), t.base(index).shape
        if found is None:
            # Torch lets an empty vector stand before the first value of a list.
            parts += [None] * (shape[axis] if len(shape) == ndim else 0)
        elif isinstance(found, Stack) and found.axis == axis:
            parts += found.parts
        elif isinstance(found, Changed) and ndim == 3 and _is_part(t, found, shape, axis):
            parts.append(found)
        else:
            raise Unfusable("cat other than of values along a new axis")
    keep_stack(t, out, axis, parts)


def _join_units(t: Translator, node: Node) -> None:
    """Values (examples, units), units after units."""
    out = node.outputs[0]
    kind, parts = t.kind(out), []
    for index in (ref.index for ref in node.args[0]):
        if index in t.vectors or t.base(index).dim() != 2:
            raise Unfusable("cat of other values than (examples, units)")
        part = t.dense(index).expr if index in t.values else t.matrix(index)
        parts.append(t.g.cast(part, kind))
    t.values[out] = Changed(t.g.concat(parts), -1)


def _is_part(t: Translator, found: Changed, shape: torch.Size, axis: int) -> bool:
    """Whether a value without its axis of size 1 is (examples, units), followed along units."""
    examples = shape[1] if axis == 0 else shape[0]
    followed = found.axis is None or (found.axis == -1 and axis < 2)
    return shape[axis] == 1 and examples == t.program.num_examples and followed


def _pads_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    return len(node.args[1]) // 2 < base(node.inputs[0]).dim()


def _follow_padding(planner: Planner, node: Node) -> None:
    """What is filled in does not change, whatever it is."""
    follow_move(planner, replace(node, args=(*node.args[:2], 0)))


def _shuffled(name: str) -> Operator:
    """Numbers in another order along a dimension."""
    return Operator(
        name,
        column=carry_beside,
        examples=run_apart(along_dims()),
        apart=call_along,
        events=follow_move,
    )


OPERATORS = (
    Operator(
        "cat",
        examples=run_apart(along_dims()),
        apart=join_values(is_new=False),
        lanes=_lower_cat,
        stack=_lower_cat,
        events=follow_move,
    ),
    Operator(
        "stack",
        examples=run_apart(along_dims(new_axes=1)),
        apart=join_values(is_new=True),
        lanes=_lower_stack,
        events=follow_move,
    ),
    Operator(
        "constant_pad_nd",
        examples=run_apart(_pads_within_examples),
        apart=call_padding,
        events=_follow_padding,
    ),
    _shuffled("flip"),
    _shuffled("roll"),
    Operator("repeat", spread_row=keep_row, events=follow_move),
)
