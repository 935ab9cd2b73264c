"""From a slice of the record to a program of stages."""

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.linear import (
    follow_batch_norm,
    follow_convolution,
    follow_product,
    follow_sum,
)
from hardstep.evaluation.events.planner import Follow, Planner
from hardstep.evaluation.events.program import Program
from hardstep.evaluation.events.windows import follow_pool
from hardstep.evaluation.trace.record import Node, Record

_FOLLOW: dict[str, Follow] = {
    "convolution": follow_convolution,
    "mm": follow_product,
    "addmm": follow_product,
    "sum": follow_sum,
    "mean": follow_sum,
    "max_pool2d_with_indices": follow_pool,
    "native_batch_norm": follow_batch_norm,
}


def plan_events(candidates: Candidates, written: Record, nodes: list[Node], span: Span) -> Program:
    """The program of a block.

    Raises:
        Unfusable: The block does not enter through pictures, or nothing can be followed.
    """
    planner = Planner(candidates, written, nodes, span, _FOLLOW)
    for node in nodes:
        planner.add(node)
    return planner.finish()
