"""What an evaluation takes, estimated without a clock: the same on every machine and in every run.

Large products are bound by arithmetic, everything else by memory and by what a call of an operation
takes. So all three are counted: of what torch did, or of the operations of a record.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from hardstep.evaluation.memory import DispatchMode, count_operations
from hardstep.evaluation.trace.record import Node, Record

Lookup = Callable[[int], Tensor]


class KnowsWork(Protocol):
    """What has to be known about an operator to say what it takes."""

    @property
    def multiply_adds(self) -> Callable[[Node, Lookup], int] | None:
        """Behind one number of a result."""


class Effort(NamedTuple):
    """What something takes."""

    calls: float = 0.0  # of operations
    operations: float = 0.0  # of products
    nbytes: float = 0.0  # read and written

    def plus(self, other: "Effort", share: float = 1.0) -> "Effort":
        """This, and a share of something else."""
        pairs = zip(self, other, strict=True)
        return Effort(*(own + share * others for own, others in pairs))

    def weigh(self, rates: "Effort") -> float:
        """All of it in one number, given what each of them takes."""
        return sum(own * rate for own, rate in zip(self, rates, strict=True))


class EffortCounter(DispatchMode):
    """Counts what torch does inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = self._operations = self._nbytes = 0

    @property
    def effort(self) -> Effort:
        """All of it."""
        return Effort(self._calls, self._operations, self._nbytes)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls += 1
        if not func.is_view:
            made = result if isinstance(result, tuple | list) else (result,)
            for leaf in (*args, *made):
                self._nbytes += _count_bytes(leaf)
            if func.overloadpacket in flop_registry:
                self._operations += count_operations(func, args, kwargs or {}, result)
        return result


def count_effort(
    written: Record, nodes: Iterable[Node], operators: Mapping[str, KnowsWork]
) -> Effort:
    """What nodes of a record take, each called once."""
    base, total = written.values.__getitem__, Effort()
    for node in nodes:
        known = operators[node.name].multiply_adds
        made = [index for index in node.outputs if index >= 0]
        each = known(node, base) if known is not None and made else 0
        moved = 0
        if not getattr(node.func, "is_view", False):
            moved = sum(_count_bytes(base(index)) for index in (*node.inputs, *made))
        operations = 2 * each * sum(base(index).numel() for index in made)
        total = total.plus(Effort(1, operations, moved))
    return total


def _count_bytes(value: object) -> int:
    """Of the numbers that there are: those that a broadcast repeats count once."""
    if isinstance(value, list | tuple):
        return sum(map(_count_bytes, value))
    if not isinstance(value, Tensor):
        return 0
    sizes = [size for size, step in zip(value.shape, value.stride(), strict=True) if step]
    return torch.Size(sizes).numel() * value.element_size()
