"""What a record of a forward pass consists of: operations and base values, by number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Refused(Exception):
    """The record cannot answer for some candidates; the message says why."""


class TooLarge(Refused):
    """The values of the forward pass take more memory than a record may."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A recorded value, by number."""

    index: int

    def __repr__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: references in place of tensors."""

    name: str  # such as `addmm`; without the underscore of an operation in place
    func: Any  # an OpOverload, functional even where the model's was in place; or None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]  # −1 for results that are not tensors

    def filled(self, operand: Callable[[Ref], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments and keyword arguments with something in place of every reference."""
        args = [_fill(argument, operand) for argument in self.args]
        return args, {name: _fill(value, operand) for name, value in self.kwargs.items()}


def _fill(argument: Any, operand: Callable[[Ref], Any]) -> Any:
    # A twentieth of the time of torch's tree_map, on arguments that are never deep.
    if isinstance(argument, Ref):
        return operand(argument)
    if isinstance(argument, list | tuple):
        return [_fill(item, operand) for item in argument]
    return argument


class Later(NamedTuple):
    """A value that nobody has asked for: of a layer that computes several operations in one go."""

    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shape: torch.Size
    dtype: torch.dtype


class Passage(NamedTuple):
    """Consecutive operations of a record; they hold no tensor, so another record may have them."""

    nodes: tuple[Node, ...]
    values: tuple[Later | None, ...]  # nothing for those that are made every time
    refs: tuple[Ref, ...]
    made: tuple[int, ...]  # their numbers
    reached: tuple[int, ...]
    seen: Mapping[str, tuple[int, ...]]  # operation and operands -> results
    nbytes: int  # that values would take, were they asked for


class Values(Sequence[Tensor]):
    """The base of every value, by number."""

    def __init__(self, kept: Sequence[Tensor | Later]) -> None:
        self._kept = list(kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: Any) -> Any:
        value = self._kept[index]
        if isinstance(value, Later):
            args = [self[one.index] if isinstance(one, Ref) else one for one in value.args]
            value = self._kept[index] = value.func(*args, **value.kwargs)
        return value


@dataclass(frozen=True)
class Record:
    """The nodes in order, every value's base, and where parameters and the loss are."""

    nodes: tuple[Node, ...]
    values: Sequence[Tensor]
    sources: Mapping[str, int]
    result: int
    nbytes: int = 0  # taken while recording, apart from parameters and inputs
    signature: str = ""  # what was computed, without the numbers
    unrolled: frozenset[int] = frozenset()  # values within torch's recurrent layers
