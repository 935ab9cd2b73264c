"""What is known about a record's values before any candidate is evaluated: where examples stand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from hardstep._torch import tree_leaves
from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.places import Mixed, Place
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.trace.nodes import Node, Record


class Cut(NamedTuple):
    """The part of a dimension of one example that is needed."""

    dim: int
    start: int
    length: int


Part = tuple[Mapping[int, Cut], Cut | None]  # what is needed of arguments and of a result
Run = Callable[[Any], Sequence[Any]]  # reads its arguments from a `Reader`
# The same of an outer product; nothing if its numbers are needed.
Carry = Callable[[Any], Outer | None]
# A product that is left undone, or what becomes of one; nothing if its numbers are needed.
Defer = Callable[[Any], Deferred | None]
# Of a dimension of the first result's examples: the dimension of each argument that has it, if
# what stands at an index there depends only on what stands at that index.
Tracks = Callable[[int], Mapping[int, int]]
# The examples (n, examples) that a changed parameter reaches; without it, all of them.
Reaches = Callable[["Scene", Column], Tensor]


class Sum(NamedTuple):
    """A sum along a dimension of one example, divided by a number."""

    dim: int
    divisor: int


ApartRule = Callable[[Node, "Scene"], "Call"]


@dataclass(frozen=True)
class Call:
    """One operation on examples of many candidates."""

    places: Sequence[Place | None]  # of the results; nothing where examples have been added up
    run: Run
    tracks: Tracks | None = None  # raises `Mixed` where a dimension is not kept
    closes: bool = False  # whether results are one value per candidate
    asks: Mapping[int, Cut] = field(default_factory=dict)  # all that it reads of an argument
    reaches: Reaches | None = None  # where a changed parameter is read
    carry: Carry | None = None  # an outer product stays one, if it does
    defer: Defer | None = None
    stacks: bool = False  # whether it makes a new dimension, such as that of time steps
    inner: int = 0  # of a product with what all share: over how many numbers it sums
    meets: Mapping[int, int] = field(default_factory=dict)  # the factors of matrices of one example
    adds: Sum | None = None  # what it adds up of one example, if that is all it does


class KnowsApart(Protocol):
    """What has to be known about an operator to run it on examples of many candidates."""

    @property
    def apart(self) -> ApartRule | None:
        """How it treats examples apart; may raise `Mixed`."""


Operators = Mapping[str, KnowsApart]


class Scene:
    """Where the examples stand in every value of a record."""

    def __init__(self, written: Record, problem: Problem) -> None:
        self.record = written
        inputs = _list_tensors(problem.inputs)
        sized = [leaf for leaf in inputs if leaf.dim() > 0]
        if not sized:
            raise Mixed("the model has no tensor for an input")
        self.num = sized[0].shape[0]
        batch = [leaf for leaf in [*inputs, *_list_tensors(problem.target)] if self._fits(leaf)]
        ids = {id(leaf) for leaf in batch}
        self.places: dict[int, Place | None] = {
            index: Place(0) if id(value) in ids else None
            for index, value in enumerate(written.values)
        }
        self.unknown: dict[int, str] = {}  # values in which examples are lost, and why
        self.calls: dict[int, Call] = {}  # by the first result
        self.closed: set[int] = set()  # results of sums over examples, and what follows from them

    def _fits(self, leaf: Tensor) -> bool:
        return leaf.dim() > 0 and leaf.shape[0] == self.num

    def base(self, index: int) -> Tensor:
        """A recorded base value."""
        return self.record.values[index]

    def shape(self, index: int) -> list[int]:
        """The shape of one example of a value, or of a value that all share."""
        place, shape = self.places[index], self.base(index).shape
        return list(shape) if place is None else place.own_shape(shape)

    def find_calls(self, operators: Operators) -> None:
        """Walk through the record, as far as examples stay apart."""
        closed: set[int] = set()
        for node in self.record.nodes:
            if not node.outputs or node.outputs[0] < 0 or not closed.isdisjoint(node.inputs):
                closed.update(node.outputs)
                continue
            try:
                call = self._find_call(node, operators)
            except Mixed as reason:
                self.unknown.update(dict.fromkeys(node.outputs, str(reason)))
                continue
            if call is not None:
                self.calls[node.outputs[0]] = call
                self.places.update(zip(node.outputs, call.places, strict=True))
                closed.update(node.outputs if call.closes else ())
        self.closed = closed

    def _find_call(self, node: Node, operators: Operators) -> Call | None:
        """How a node treats examples; nothing if it has none."""
        for index in node.inputs:
            if index in self.unknown:
                raise Mixed(self.unknown[index])
        if all(self.places[index] is None for index in node.inputs):
            return None
        rule = operators[node.name].apart
        if rule is None:
            raise Mixed(f"{node.name} is not known to treat examples apart")
        return rule(node, self)


def _list_tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
