"""The registry: every operator that a fast tier knows, by name."""

from collections.abc import Iterable

from hardstep.evaluation.ops import (
    activations,
    arithmetic,
    convolutions,
    extremes,
    indexing,
    losses,
    moves,
    norms,
    parts,
    pooling,
    products,
    reductions,
    shapes,
    softmax,
    sums,
    views,
)
from hardstep.evaluation.ops.operator import Registry
from hardstep.evaluation.trace.nodes import Node, Record

REGISTRY = Registry(
    operator
    for family in (
        arithmetic,
        activations,
        views,
        parts,
        moves,
        products,
        convolutions,
        sums,
        extremes,
        softmax,
        reductions,
        pooling,
        norms,
        indexing,
        losses,
        shapes,
    )
    for operator in family.OPERATORS
)


def count_work(written: Record, nodes: Iterable[Node]) -> int:
    """Operations that some nodes of a record took: multiply-adds, or numbers made."""
    total, base = 0, written.values.__getitem__
    for node in nodes:
        known = REGISTRY[node.name].multiply_adds
        each = known(node, base) if known else 1
        total += each * sum(base(index).numel() for index in node.outputs if index >= 0)
    return total
