"""What an entry of the registry may say about an aten operator."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hardstep.evaluation.events.planner import Follow, Sides
from hardstep.evaluation.fused.kernel_plan import Factors
from hardstep.evaluation.fused.translate import Lowering, Make
from hardstep.evaluation.gathered import ApartRule, RowRule
from hardstep.evaluation.incremental.columns import ColumnRule, Lookup
from hardstep.evaluation.incremental.examples import ExamplesRule
from hardstep.evaluation.trace.nodes import Node, Ref


@dataclass(frozen=True)
class Operator:
    """How each form of change passes through an operator; what is left out is not known.

    A form without a rule becomes the next one: a column becomes changed examples, these become one
    whole value per candidate, and a kernel that cannot be made leaves its block to them.
    """

    name: str

    # Changes carried operation by operation.
    column: ColumnRule | None = None  # a changed unit stays one
    examples: ExamplesRule | None = None  # examples stay apart, or are added up
    apart: ApartRule | None = None  # the same wherever in a value examples stand
    rows: RowRule | None = None  # expressions along the last dimension of an example
    whole: Callable[[list[Any]], list[Any]] | None = None  # arguments over whole values
    needs_all_batched: bool = False  # over whole values: either all arguments or none

    # Changes in fused kernels.
    lanes: Lowering | None = None  # expressions of which an operand changes
    stack: Lowering | None = None  # the same where an operand is a stack
    enters_lanes: bool = False  # `lanes` reads changed parameters
    spread_row: Make | None = None  # what becomes of a row that is broadcast to all examples

    # Changes as events.
    events: Follow | None = None  # stages that follow changed numbers
    events_entry: Follow | None = None  # how a changed parameter reaches the examples
    enters_events: bool = False  # `events` reads changed vectors of parameters
    sides: Sides | None = None  # of windows, where they stand side by side
    of_pictures: bool = False  # blocks that meet it are what events are for

    # Facts.
    order: Callable[[Node, int], list[int]] | None = None  # the old dimensions of each new one
    factors: Callable[[Node], Factors] | None = None  # of a product
    is_elementwise: bool = False
    is_hard: bool = False  # results are often the base's where arguments are not
    takes_units: bool = False  # a changed unit (axis 1) costs what it alone adds to the result
    shape_only: bool = False  # the values of its arguments do not matter
    masks: Callable[[Node], list[Ref]] | None = None  # truths that say how much there is
    multiply_adds: Callable[[Node, Lookup], int] | None = None  # behind one number of a result

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""
        return self.factors is not None


class Registry(dict[str, Operator]):
    """Entries by name; an operator without one is an entry that says nothing."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        super().__init__()
        for operator in operators:
            if operator.name in self:
                raise ValueError(f"{operator.name} has two entries")
            self[operator.name] = operator

    def __missing__(self, name: str) -> Operator:
        return Operator(name)

    @cached_property
    def costly(self) -> frozenset[str]:
        """Names of operators that take more than copying their results."""
        return frozenset(name for name, one in self.items() if one.multiply_adds is not None)
