"""What the operations of a record take, counted without a clock."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.trace.nodes import Node, Record


class Effort(NamedTuple):
    """What something takes."""

    calls: int = 0  # of operations
    nbytes: int = 0  # that they read and write


def count_effort(written: Record, nodes: Iterable[Node]) -> Effort:
    """What nodes take, each called once; other names for the same numbers move none."""
    calls = nbytes = 0
    for node in nodes:
        calls += 1
        made = [index for index in node.outputs if index >= 0]
        if not getattr(node.func, "is_view", False):
            nbytes += sum(_count_bytes(written.values[index]) for index in (*node.inputs, *made))
    return Effort(calls, nbytes)


def _count_bytes(value: Tensor) -> int:
    """Of the numbers that there are: those that a broadcast repeats count once."""
    sizes = [size for size, step in zip(value.shape, value.stride(), strict=True) if step]
    return torch.Size(sizes).numel() * value.element_size()
