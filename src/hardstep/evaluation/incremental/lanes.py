"""A tile of candidates that follows a forward pass: what it changes, operation by operation."""

from collections.abc import Mapping

from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.incremental.changes import Change, Examples, changed_examples, stack
from hardstep.evaluation.incremental.examples import carry_examples
from hardstep.evaluation.incremental.merge import HARD, Held, find_pairs, join, narrow, widen
from hardstep.evaluation.incremental.walk import attempt, carry_whole, start_changes
from hardstep.evaluation.ops.columns import Column, Lookup, column_rule
from hardstep.evaluation.trace.record import Node
from hardstep.evaluation.trace.slice import check_visible


class Lane:
    """A tile on its way through a forward pass."""

    def __init__(self, candidates: Candidates, tile: Span) -> None:
        self.tile, self.num = tile, tile.end - tile.start
        self.changes = start_changes(candidates, tile)  # of the searched tensors
        self.work = 0.0  # operations so far
        self.reason = ""  # why it was given up
        self.losses: Tensor | None = None

    def advance(
        self, node: Node, held: dict[int, Held], base: Lookup, operations: int
    ) -> dict[int, Held]:
        """The changes of a node's results that are not the base's; counts what they took."""
        kept = {}
        for index, one in self.carry(node, held, base).items():
            if index == node.outputs[0]:
                self.work += operations * _share(one, base(index)) / _depth(node, held, base)
            found = narrow(base(index), one) if node.name in HARD else one
            if found is not None:
                kept[index] = found
        return kept

    def carry(self, node: Node, held: dict[int, Held], base: Lookup) -> dict[int, Held]:
        """The changes of a node's results."""
        check_visible(node, held.keys(), base)
        if all(isinstance(one.change, Column) for one in held.values()):
            env = {index: one.change for index, one in held.items()}
            column = attempt(node, column_rule, node, env, base)
            if column is not None:
                return {node.outputs[0]: Held(column)}
        held = _leave_columns(held, base)
        if not held:
            return {}
        found = self._carry_examples(node, held, base)
        if found is None:
            whole = {i: stack(base(i), one.change, self.num, one.pairs) for i, one in held.items()}
            results = attempt(node, carry_whole, node, whole, base, None, self.num)
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
        results = attempt(node, carry_examples, node, env, base, pairs)
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


def _depth(node: Node, held: Mapping[int, Held], base: Lookup) -> int:
    """How many units a product would sum over of which it takes one, which changed."""
    (index, one), *others = held.items()
    is_unit = isinstance(one.change, Column) and one.change.axis == 1
    products = ("mm", "addmm", "convolution")
    return base(index).shape[1] if is_unit and not others and node.name in products else 1
