"""Maxima, minima and their places along a dimension."""

from dataclasses import dataclass
from functools import partial

from hardstep.evaluation.fused.expressions import Expr, Fn, Kind, Reduction, Unfusable
from hardstep.evaluation.fused.stacks import find_reduced, read_parts, wrap
from hardstep.evaluation.fused.sums import read_along
from hardstep.evaluation.fused.translate import Changed, Translator, find_argument
from hardstep.evaluation.gathered import Builder
from hardstep.evaluation.gathered.along import call_along
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.examples import along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node


@dataclass(frozen=True)
class Search:
    """What is looked for, and what is returned of it."""

    largest: bool
    value: bool = False
    place: bool = False

    @property
    def reductions(self) -> tuple[Reduction, Reduction]:
        """The value and its place, along an axis."""
        if self.largest:
            return Reduction.MAX, Reduction.ARGMAX
        return Reduction.MIN, Reduction.ARGMIN

    def choose(self, value: Expr, place: Expr) -> list[Expr]:
        """What is returned."""
        return [value] * self.value + [place] * self.place


def _lower(t: Translator, node: Node, search: Search) -> None:
    """Maximum, minimum and their places."""
    dim = find_argument(node, 1, "dim", None)
    if isinstance(dim, list):
        dim = dim[0] if len(dim) == 1 else None
    if dim is None:
        raise Unfusable(f"{node.name} over everything")
    value = read_along(t, node, node.inputs[0], dim)
    if not value.kind.is_float:
        raise Unfusable(f"{node.name} of {value.kind}")
    extreme, place = (t.g.reduce(one, value) for one in search.reductions)
    for out, expr in zip(node.outputs, search.choose(extreme, place), strict=True):
        t.values[out] = Changed(expr)


def _lower_stack(t: Translator, node: Node, search: Search) -> None:
    """The largest or smallest part at every place, and the first time it is reached."""
    stack, g = find_reduced(t, node, find_argument(node, 1, "dim", None)), t.g
    better, within = (Fn.MAX, Fn.LE) if search.largest else (Fn.MIN, Fn.GE)
    (extreme, *others), column = read_parts(t, stack)
    place = g.constant(0, Kind.I64)
    for number, expr in enumerate(others, start=1):
        # As in torch, not-a-number beats every number, and only the first one counts.
        beaten = g.apply(Fn.NOT, g.apply(within, expr, extreme))
        beaten = g.apply(Fn.AND, beaten, g.apply(Fn.EQ, extreme, extreme))
        place = g.select(beaten, g.constant(number, Kind.I64), place)
        extreme = g.apply(better, extreme, expr)
    for out, expr in zip(node.outputs, search.choose(extreme, place), strict=True):
        t.values[out] = wrap(expr, column)


def _build_rows(b: Builder, node: Node, search: Search) -> list[Expr]:
    index = node.inputs[0]
    b.check_source(index)
    b.check_along(node, index)
    value = b.operand(index, index)
    return search.choose(*(b.graph.reduce(one, value) for one in search.reductions))


def _extreme(name: str, search: Search) -> Operator:
    return Operator(
        name,
        column=carry_beside,
        examples=run_apart(along_dims()),
        apart=call_along,
        rows=partial(_build_rows, search=search),
        lanes=partial(_lower, search=search),
        stack=partial(_lower_stack, search=search),
        is_hard=not search.value,
    )


OPERATORS = (
    _extreme("max", Search(largest=True, value=True, place=True)),
    _extreme("min", Search(largest=False, value=True, place=True)),
    _extreme("amax", Search(largest=True, value=True)),
    _extreme("amin", Search(largest=False, value=True)),
    _extreme("argmax", Search(largest=True, place=True)),
    _extreme("argmin", Search(largest=False, place=True)),
)
