"""The part of a record that given tensors reach, up to the loss."""

from collections.abc import Callable, Container, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.trace.record import Node, Record, Ref, Refused

# Results depend on the shape of the argument only, never on its values.
SHAPE_ONLY = {
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
    "randint_like", "new_zeros", "new_ones", "new_empty", "new_full", "zero",
}  # fmt: skip


class Slice:
    """The nodes between some parameters and the loss.

    Raises:
        Refused: The record does not say what happens to them on the way.
    """

    def __init__(self, written: Record, names: Sequence[str]) -> None:
        self.record = written
        sources = {written.sources[name] for name in names}
        self.nodes = _drop_unused(_follow(written, sources), written.result)

    def base(self, index: int) -> Tensor:
        """A recorded base value."""
        return self.record.values[index]


def _follow(written: Record, sources: set[int]) -> list[Node]:
    """The nodes that depend on the sources."""
    found, reached = [], set(sources)
    for node in written.nodes:
        if node.name in SHAPE_ONLY or reached.isdisjoint(node.inputs):
            continue
        check_visible(node, reached, written.values.__getitem__)
        found.append(node)
        reached.update(node.outputs)
    return found


def check_visible(node: Node, reached: Container[int], base: Callable[[int], Tensor]) -> None:
    """Refuse a node that lets Python see what the `reached` values are."""
    if -1 in node.outputs:
        raise Refused(f"a value that depends on it reaches Python through {node.name}")
    if _shape_follows(node, reached, base):
        raise Refused(f"the shape of what {node.name} returns depends on it")


@cache
def _chooses_its_shape(func: Any) -> bool:
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def _shape_follows(node: Node, reached: Container[int], base: Callable[[int], Tensor]) -> bool:
    """Whether values that depend on the sources decide how much there is of the result."""
    if not _chooses_its_shape(node.func):
        return False
    if node.name != "index":
        return True
    masks = [ref.index for ref in node.args[1] if isinstance(ref, Ref)]
    truths = (torch.bool, torch.uint8)
    return any(index in reached and base(index).dtype in truths for index in masks)


def _drop_unused(nodes: list[Node], result: int) -> list[Node]:
    """Those of them that the result depends on: models keep records that no loss looks at."""
    found, needed = [], {result}
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]
