"""What a plan consists of: a program, and the products through which candidates enter it.

A plan has no numbers of a step; a kernel is bound to those later.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hardstep.evaluation.fused.states import KnowsRows
from hardstep.evaluation.fused.tables import Matrix, Slab
from hardstep.evaluation.fused.translate import KnowsLanes, Program
from hardstep.evaluation.incremental.columns import KnowsColumns
from hardstep.evaluation.trace.nodes import Node


class Factors(NamedTuple):
    """A product left · right + bias, by the numbers of its values."""

    left: int
    right: int
    bias: int | None


class KnowsKernels(KnowsLanes, KnowsColumns, KnowsRows, Protocol):
    """What has to be known about an operator to make a kernel of it."""

    @property
    def factors(self) -> Callable[[Node], Factors] | None:
        """What a matrix product multiplies."""

    @property
    def order(self) -> Callable[[Node, int], list[int]] | None:
        """The old dimensions of each new one, of so many."""


Operators = Mapping[str, KnowsKernels]
Rows = Matrix | Slab


@dataclass(frozen=True)
class Entry:
    """A product x·W through which a change of W (and of its bias) reaches the examples."""

    output: int
    examples: Matrix | Slab  # what meets W
    old: Matrix | Slab  # what comes of it
    right: int
    bias: int | None


@dataclass(frozen=True)
class ColumnEntry(Entry):
    """New columns, made by torch."""

    column: int  # the table, as below


@dataclass(frozen=True)
class LinearEntry(Entry):
    """New columns, made by the kernel from moves along directions."""

    shift: int
    responses: int | None  # nothing if directions are single inputs: then these are read
    places: int
    lengths: int


@dataclass(frozen=True)
class LayerEntry(Entry):
    """Whole layers, made by the kernel from moves along dense directions."""

    responses: int
    particles: int
    lengths: int


@dataclass
class KernelPlan:
    """One block's kernel, without the numbers of a step."""

    program: Program
    operators: Operators
    before: list[Node] = field(default_factory=list)  # on parameters alone, by torch
    after: list[Node] = field(default_factory=list)  # on sums over examples, by torch
    entries: list[ColumnEntry | LinearEntry | LayerEntry] = field(default_factory=list)
    text: str = ""
    lanes: int = 0
    scratch: int = 0
