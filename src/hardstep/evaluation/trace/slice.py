"""The part of a record that given tensors reach, up to the loss."""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from hardstep.evaluation.trace.nodes import Node, Record, Ref, Refused


class KnowsShapes(Protocol):
    """What has to be known about an operator to tell values that matter from shapes that do."""

    @property
    def shape_only(self) -> bool:
        """Whether results depend on the shape of the argument only, never on its values."""

    @property
    def masks(self) -> Callable[[Node], list[Ref]] | None:
        """The arguments that say how much there is of the result if they are truths."""


Operators = Mapping[str, KnowsShapes]


class Slice:
    """The nodes between some parameters and the loss.

    Args:
        written: The record.
        names: Of the parameters.
        operators: What is known about operators, by name.

    Raises:
        Refused: The record does not say what happens to them on the way.
    """

    def __init__(self, written: Record, names: Sequence[str], operators: Operators) -> None:
        self.record = written
        self.sources = {written.sources[name] for name in names}
        self.nodes = _drop_unused(_follow(written, self.sources, operators), written.result)

    def base(self, index: int) -> Tensor:
        """A recorded base value."""
        return self.record.values[index]


def _follow(written: Record, sources: set[int], operators: Operators) -> list[Node]:
    """The nodes that depend on the sources."""
    found, reached = [], set(sources)
    for node in written.nodes:
        known = operators[node.name]
        if known.shape_only or reached.isdisjoint(node.inputs):
            continue
        check_visible(node, known, reached, written.values.__getitem__)
        found.append(node)
        reached.update(node.outputs)
    return found


def check_visible(
    node: Node, known: KnowsShapes, reached: Container[int], base: Callable[[int], Tensor]
) -> None:
    """Refuse a node that lets Python see what the `reached` values are."""
    if -1 in node.outputs:
        raise Refused(f"a value that depends on it reaches Python through {node.name}")
    if _shape_follows(node, known, reached, base):
        raise Refused(f"the shape of what {node.name} returns depends on it")


@cache
def _chooses_its_shape(func: Any) -> bool:
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def _shape_follows(
    node: Node, known: KnowsShapes, reached: Container[int], base: Callable[[int], Tensor]
) -> bool:
    """Whether values that depend on the sources decide how much there is of the result."""
    if not _chooses_its_shape(node.func):
        return False
    if known.masks is None:
        return True
    masks = [ref.index for ref in known.masks(node)]
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
