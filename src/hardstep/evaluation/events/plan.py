"""From a slice of the record to a program of stages, node by node."""

from collections.abc import Callable

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.elementwise import follow_elementwise, follow_view_of
from hardstep.evaluation.events.entries import follow_parameters
from hardstep.evaluation.events.linear import (
    follow_average,
    follow_convolution,
    follow_product,
    follow_sum,
)
from hardstep.evaluation.events.maps import MAXIMA
from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.events.program import Program
from hardstep.evaluation.events.vectors import follow_batch_norm
from hardstep.evaluation.events.windows import follow_pool
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.translate_elementwise import BUILD
from hardstep.evaluation.trace.record import Node, Record

_VIEWS = (
    "view", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "select", "slice",
    "split", "split_with_sizes", "unbind", "alias", "detach",
)  # fmt: skip
_MEANS = ("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
_MOVES = ("cat", "stack", "index_select", "flip", "constant_pad_nd", "expand", "repeat", "roll")
_FOLLOW: dict[str, Callable[[Planner, Node], None]] = {
    **dict.fromkeys(BUILD, follow_elementwise),
    **dict.fromkeys(_VIEWS, follow_view_of),
    **dict.fromkeys(_MOVES, follow_move),
    **dict.fromkeys(("mm", "addmm"), follow_product),
    **dict.fromkeys(("sum", "mean"), follow_sum),
    **dict.fromkeys(_MEANS, follow_average),
    **dict.fromkeys(MAXIMA, follow_pool),
    "convolution": follow_convolution,
    "native_batch_norm": follow_batch_norm,
}
_TAKES_VECTORS = {"native_batch_norm"}


def plan_events(candidates: Candidates, written: Record, nodes: list[Node], span: Span) -> Program:
    """The program of a block.

    Raises:
        Unfusable: The block does not enter through pictures, or nothing can be followed.
    """
    planner = Planner(candidates, written, nodes, span)
    for node in nodes:
        _add(planner, node)
    return planner.finish()


def _add(planner: Planner, node: Node) -> None:
    """Sort a node: parameters alone, something to follow, or something that torch does later."""
    inputs, parameters = set(node.inputs), planner.weights.keys() | planner.vectors
    if inputs & planner.weights.keys() and inputs.isdisjoint(planner.values.keys() | planner.later):
        follow_parameters(planner, node)
        return
    if inputs & parameters and node.name not in _TAKES_VECTORS:
        raise Unfusable(f"{node.name}: a changed parameter is used in an unusual way")
    if inputs.isdisjoint(planner.later) and node.name in _FOLLOW:
        try:
            _FOLLOW[node.name](planner, node)
            return
        except Unfusable:
            if inputs & parameters:
                raise
    planner.postpone(node)
