"""Operators that put numbers elsewhere, or in several places: concatenation, padding, copies."""

from dataclasses import replace

from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.changes import Pairs
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import Env, along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node


def _pads_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    return len(node.args[1]) // 2 < base(node.inputs[0]).dim()


def _follow_padding(planner: Planner, node: Node) -> None:
    """What is filled in does not change, whatever it is."""
    follow_move(planner, replace(node, args=(*node.args[:2], 0)))


def _shuffled(name: str) -> Operator:
    """Numbers in another order along a dimension."""
    return Operator(name, column=carry_beside, examples=run_apart(along_dims()), events=follow_move)


OPERATORS = (
    Operator("cat", examples=run_apart(along_dims()), events=follow_move),
    Operator("stack", examples=run_apart(along_dims(new_axes=1)), events=follow_move),
    Operator("constant_pad_nd", examples=run_apart(_pads_within_examples), events=_follow_padding),
    _shuffled("flip"),
    _shuffled("roll"),
    Operator("repeat", events=follow_move),
)
