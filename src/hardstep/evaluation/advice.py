"""What to try where the code of a model or a loss keeps a block from a faster tier.

One entry per idiom, found by the reason that a tier gave, and removed when the tiers cover it. What
an entry advises was measured to pay: the comments say how much of a step's processor time, on two
linear layers (784–128–10 or 64–48–10, batch 64) with one direction per row.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.nodes import Node, Record, Refused
from hardstep.evaluation.trace.slice import Slice

REDUCTIONS = "amax|amin|aminmax|max|min|mean|sum|std|var|linalg_vector_norm"


class Idiom(NamedTuple):
    """Something that is written in a costly way, and what to write instead."""

    reason: str  # a pattern in what a tier gives as its reason
    advice: str
    holds: Callable[["_Place"], bool] = lambda place: True  # what the reason leaves open


class _Place(NamedTuple):
    """Where a reason was given."""

    reason: re.Match[str]
    record: Record
    nodes: list[Node]  # that the block reaches
    names: Sequence[str]  # of the block's tensors


def advise(reason: str, record: Record | None, names: Sequence[str]) -> str:
    """What to try for a block of tensors that a tier refused; empty if there is nothing known."""
    for idiom in IDIOMS:
        found = re.search(idiom.reason, reason)
        if found and (record is None or idiom.holds(_look(found, record, names))):
            return idiom.advice
    return ""


def _look(found: re.Match[str], record: Record, names: Sequence[str]) -> _Place:
    try:
        nodes = Slice(record, names, REGISTRY).nodes
    except Refused:
        nodes = []
    return _Place(found, record, nodes, names)


def _reduces_a_weight(place: _Place) -> bool:
    """Convolutions have their channels followed as weights are, and pooling is no scale."""
    shapes = [place.record.values[place.record.sources[name]].shape for name in place.names]
    reduced = [node.inputs[0] for node in place.nodes if node.name == place.reason[1]]
    return any(place.record.values[index].shape in shapes for index in reduced)


IDIOMS = (
    Idiom(  # of the whole weight: 29 to 75 times a buffer; 5 to 7 on the small network
        rf"^({REDUCTIONS}) of a parameter",
        "take a scale per row of the weight, or compute it outside forward, as a buffer",
        _reduces_a_weight,
    ),
    Idiom(  # 11 to 13 times, small
        r"leaves torch through|Cannot access data pointer",
        "stay in torch: no .numpy(), no .tolist()",
    ),
    Idiom(  # 14 times, small
        r"reads the values of tensors by",
        "put tensors together with torch.stack, not with torch.tensor",
    ),
    Idiom(  # 13 to 15 times, small
        r"^the shape of what|dynamic shape",
        "use torch.where or masked_fill, not nonzero or a mask as an index",
    ),
    Idiom(  # 7 times, small
        r"after writing to a view of it",
        "where the code writes into a part of a tensor (h[:, 0] = 0), multiply by a mask",
    ),
    Idiom(  # 3 times, small
        r"rounding_mode floor|^floor_divide",
        "use (a / b).floor()",
    ),
    Idiom(  # 10 to 12 times, small
        r"reaches Python through|calling \.item\(\)|data-dependent control flow",
        "keep the value a tensor: no .item(), no float(), and torch.where instead of if",
    ),
)
