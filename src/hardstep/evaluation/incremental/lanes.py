"""A tile of candidates that follows a forward pass: what it changes, operation by operation."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.incremental.changes import Change, Examples, changed_examples, stack
from hardstep.evaluation.incremental.columns import Column, Lookup, carry_columns
from hardstep.evaluation.incremental.examples import carry_examples
from hardstep.evaluation.incremental.merge import Held, find_pairs, join, narrow, widen
from hardstep.evaluation.incremental.walk import (
    KnowsChanges,
    attempt,
    carry_whole,
    start_changes,
)
from hardstep.evaluation.trace.nodes import Node
from hardstep.evaluation.trace.slice import KnowsShapes, check_visible


class Knows(KnowsChanges, KnowsShapes, Protocol):
    """What has to be known about an operator to follow it while it runs."""

    @property
    def is_hard(self) -> bool:
        """Whether results are often the base's where arguments are not."""

    @property
    def takes_units(self) -> bool:
        """Whether a changed unit costs what it alone adds to the result."""


Operators = Mapping[str, Knows]


class Lane:
    """A tile on its way through a forward pass."""

    def __init__(self, candidates: Candidates, tile: Span, operators: Operators) -> None:
        self.operators = operators
        self.tile, self.num = tile, tile.end - tile.start
        self.changes = start_changes(candidates, tile)  # of the searched tensors
        self.work = 0.0  # operations so far
        self.reason = ""  # why it was given up
        self.losses: Tensor | None = None

    def advance(
        self, node: Node, held: dict[int, Held], base: Lookup, operations: int
    ) -> dict[int, Held]:
        """The changes of a node's results that are not the base's; counts what they took."""
        kept, known = {}, self.operators[node.name]
        for index, one in self.carry(node, held, base).items():
            if index == node.outputs[0]:
                depth = _depth(held, base) if known.takes_units else 1
                self.work += operations * _share(one, base(index)) / depth
            found = narrow(base(index), one) if known.is_hard else one
            if found is not None:
                kept[index] = found
        return kept

    def carry(self, node: Node, held: dict[int, Held], base: Lookup) -> dict[int, Held]:
        """The changes of a node's results."""
        known = self.operators[node.name]
        check_visible(node, known, held.keys(), base)
        if all(isinstance(one.change, Column) for one in held.values()):
            env = {index: one.change for index, one in held.items()}
            columns = attempt(node, carry_columns, node, env, base, self.operators)
            if columns is not None:
                return dict(zip(node.outputs, map(Held, columns), strict=True))
        held = _leave_columns(held, base)
        if not held:
            return {}
        found = self._carry_examples(node, held, base)
        if found is None:
            whole = {i: stack(base(i), one.change, self.num, one.pairs) for i, one in held.items()}
            results = attempt(node, carry_whole, node, known, whole, base, None, self.num)
            found = {i: Held(change) for i, change in zip(node.outputs, results, strict=True)}
        return found

    def _carry_examples(
        self, node: Node, held: Mapping[int, Held], base: Lookup
    ) -> dict[int, Held] | None:
        """The same by examples, if they stay apart."""
        sets = [one.pairs for one in held.values() if one.pairs is not None]
        if len(sets) < len(held) or len({pairs.num_examples for pairs in sets}) != 1:
            return None
        pairs, env = join(sets), dict[int, Change]()
        for index, (change, own) in held.items():
            if isinstance(change, Examples) and own is not None:
                change = widen(base(index), change, own, pairs)
            env[index] = change
        results = attempt(node, carry_examples, node, env, base, pairs, self.operators)
        if results is None:
            return None
        return {
            index: Held(change, pairs if isinstance(change, Examples) else None)
            for index, change in zip(node.outputs, results, strict=True)
        }


def _leave_columns(held: Mapping[int, Held], base: Lookup) -> dict[int, Held]:
    """Changes with the examples in which a column differs; without columns that do not."""
    found = {}
    for index, one in held.items():
        change, value = one.change, base(index)
        if isinstance(change, Column) and change.axis != 0 and value.dim() > 1:
            pairs = find_pairs(changed_examples(value, change))
            if pairs is None:
                continue
            one = Held(change, pairs)
        found[index] = one
    return found


def _share(held: Held, value: Tensor) -> float:
    """Numbers that a change has for every number of the base's value."""
    change = held.change
    numbers = change.slices if isinstance(change, Column) else change.values
    return numbers.numel() / max(1, value.numel())


def _depth(held: Mapping[int, Held], base: Lookup) -> int:
    """How many units an operation sums over, if it takes the one that changed."""
    (index, one), *others = held.items()
    is_unit = isinstance(one.change, Column) and one.change.axis == 1
    return base(index).shape[1] if is_unit and not others else 1
