"""Learned first states of recurrent layers: rows of a parameter, broadcast to all examples.

As they are, or with something that no candidate changes: `h0 + zeros`, `torch.where(new, h0, 0)`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Size

from hardstep.evaluation.fused.expressions import Access, Expr, Fn, Kind
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.fused.stacks import keep_stack, read_old
from hardstep.evaluation.fused.tables import Replaced
from hardstep.evaluation.fused.translate import Changed, Lookup, Make, Stack, Translator
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.trace.nodes import Node, Ref


class KnowsRows(Protocol):
    """What has to be known about an operator to broadcast a row with it."""

    @property
    def spread_row(self) -> Make | None:
        """What becomes of a row that is broadcast to all examples."""

    @property
    def is_elementwise(self) -> bool:
        """Whether it acts number by number."""


class State(NamedTuple):
    """What becomes one row of every example."""

    source: int  # the parameter
    make: Make  # the expression of what becomes of a row


def keep_row(node: Node, base: Lookup, graph: Graph, operand: Callable[[Ref], Expr]) -> Expr:
    """A row that is the same in all places."""
    del base, graph
    return operand(node.args[0])


def find_state(
    node: Node,
    operators: Mapping[str, KnowsRows],
    base: Lookup,
    weights: Mapping[int, Column | None],
    vector: int | None,
) -> State | None:
    """How a node gives all examples a changed row of a parameter, or the changed vector."""
    known = operators[node.name]
    sources = [index for index in node.inputs if index in weights or index == vector]
    if known.spread_row is None or len(sources) != 1:
        return None
    (source,), shape = sources, base(node.outputs[0]).shape
    weight, old = weights.get(source), base(source).shape
    if known.is_elementwise and old.numel() == shape.numel():
        return None  # a row that stays one, or that of a single example
    if source == vector:
        fits = len(shape) == 3 and shape[0] == 1
    else:
        fits = weight is not None and weight.axis == 0 and len(old) == len(shape)
    return State(source, known.spread_row) if fits and _spreads_rows(old, shape) else None


def _spreads_rows(old: Size, new: Size) -> bool:
    """Whether (layers, 1, units), or what is broadcast to it, became (layers, examples, units)."""
    whole = (1,) * (len(new) - len(old)) + tuple(old)
    if len(whole) != len(new) or len(new) not in (2, 3):
        return False
    return (*whole[:-2], 1, whole[-1]) == (*new[:-2], whole[-2], new[-1])


def enter_rows(t: Translator, node: Node, state: State, by_unit: bool) -> None:
    """A state, or a stack of those of layers, of which candidates replace one for every example.

    Args:
        t: What follows the block.
        node: What makes it.
        state: Of what, and how.
        by_unit: Whether a candidate's unit says which layer it is; there is but one otherwise.
    """
    source, out = state.source, node.outputs[0]
    num, size = t.base(source).shape[:-1].numel(), t.base(out).shape[-1]
    new = t.g.read(Access.CANDIDATE_AXIS, t.kind(source), t.program.table(Replaced(source)), size)
    unit, stack = t.g.unit() if by_unit else None, Stack(out, 0, (None,) * num)
    if unit is not None:
        t.program.exits.append(t.g.apply(Fn.EQ, unit, unit))  # all examples count

    def read_row(number: int) -> Changed:
        def operand(ref: Ref) -> Expr:
            return new if ref.index == source else _read_other(t, ref.index, out, number)

        row = state.make(node, t.base, t.g, operand)
        if unit is None or num == 1:
            return Changed(row, -1)
        here = t.g.apply(Fn.EQ, unit, t.g.constant(number, Kind.I64))
        return Changed(t.g.select(here, row, read_old(t, stack, number, False)), -1)

    if t.base(out).dim() == 2:
        t.values[out] = read_row(0)
    else:
        keep_stack(t, out, 0, map(read_row, range(num)))


def _read_other(t: Translator, index: int, out: int, number: int) -> Expr:
    """An operand that no candidate changes, for one of the layers."""
    shape = t.base(out).shape
    if len(shape) == 3 and t.base(index).shape == shape:
        return read_old(t, Stack(index, 0, (None,) * shape[0]), number, False)
    return t.read_shared(index, len(shape), -1, False)
