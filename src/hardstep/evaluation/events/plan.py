"""From a slice of the record to a program of stages, node by node."""

from collections.abc import Mapping

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.entries import follow_parameters
from hardstep.evaluation.events.planner import KnowsEvents, Planner
from hardstep.evaluation.events.program import Program
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.trace.nodes import Node, Record


def plan_events(
    candidates: Candidates,
    written: Record,
    nodes: list[Node],
    span: Span,
    operators: Mapping[str, KnowsEvents],
) -> Program:
    """The program of a block.

    Raises:
        Unfusable: The block does not enter through pictures, or nothing can be followed.
    """
    planner = Planner(candidates, written, nodes, span, operators)
    for node in nodes:
        _add(planner, node)
    return planner.finish()


def _add(planner: Planner, node: Node) -> None:
    """Sort a node: parameters alone, something to follow, or something that torch does later."""
    inputs, parameters = set(node.inputs), planner.weights.keys() | planner.vectors
    known = planner.operators[node.name]
    if inputs & planner.weights.keys() and inputs.isdisjoint(planner.values.keys() | planner.later):
        follow_parameters(planner, node)
        return
    if inputs & parameters and not known.enters_events:
        raise Unfusable(f"{node.name}: a changed parameter is used in an unusual way")
    if inputs.isdisjoint(planner.later) and known.events is not None:
        try:
            known.events(planner, node)
            return
        except Unfusable:
            if inputs & parameters:
                raise
    planner.postpone(node)
