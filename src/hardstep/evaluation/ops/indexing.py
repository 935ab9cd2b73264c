"""Operators that take what an index says."""

import torch

from hardstep.evaluation.events.moves import follow_move
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.changes import Examples, Pairs
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import (
    Env,
    Result,
    along_dims,
    always,
    gather_examples,
    run_apart,
)
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node, Ref

_along = along_dims()


def _indexes_within_examples(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    """Along other dimensions than axis 0, of which every operand has all examples."""
    whole = all(base(index).shape[0] == pairs.num_examples for index in node.inputs)
    return whole and _along(node, env, base, pairs)


def _look_up(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    """table[indices] with changed indices and a shared table."""
    table, indices = node.args[:2]
    if table.index in env or len(indices) != 1 or indices[0] is None:
        return None
    if base(indices[0].index).dtype == torch.bool:
        return None
    places = gather_examples(indices[0].index, env, base, pairs)
    return (Examples(base(table.index)[places]),)


def _find_masks(node: Node) -> list[Ref]:
    return [index for index in node.args[1] if isinstance(index, Ref)]


OPERATORS = (
    Operator("gather", examples=run_apart(_indexes_within_examples)),
    Operator("scatter", examples=run_apart(_indexes_within_examples)),
    Operator("index", examples=_look_up, masks=_find_masks, takes_parameters=True),
    Operator(
        "index_select",
        column=carry_beside,
        examples=run_apart(_along, table=0),
        events=follow_move,
    ),
    Operator("embedding", examples=run_apart(always, table=1)),
)
