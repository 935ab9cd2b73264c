"""Carrying changes through a record, operation by operation."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.incremental.changes import (
    Change,
    Pairs,
    Stacked,
    changed_examples,
    stack,
)
from hardstep.evaluation.incremental.columns import Column, KnowsColumns, Lookup, carry_columns
from hardstep.evaluation.incremental.examples import KnowsExamples, carry_examples
from hardstep.evaluation.memory import is_memory_error
from hardstep.evaluation.sandbox import run_vmap
from hardstep.evaluation.trace.nodes import Node, Ref, Refused
from hardstep.evaluation.trace.slice import Slice

Found = TypeVar("Found")


class KnowsChanges(KnowsColumns, KnowsExamples, Protocol):
    """What has to be known about an operator to carry changes of any form."""

    @property
    def needs_all_batched(self) -> bool:
        """Whether all that it is given has to be one value per candidate, or none of it."""

    @property
    def whole(self) -> Callable[[list[Any]], list[Any]] | None:
        """What its arguments become where they are one value per candidate."""


class Walk:
    """Changes on their way through a slice.

    Args:
        part: The slice.
        operators: What is known about operators, by name.
    """

    def __init__(self, part: Slice, operators: Mapping[str, KnowsChanges]) -> None:
        self.operators = operators
        self.record, self.nodes, self.base = part.record, part.nodes, part.base
        self.sources = part.sources
        self.last_use = {i: n for n, node in enumerate(self.nodes) for i in node.inputs}
        affected = [self.base(i) for node in self.nodes for i in node.outputs]
        sizes = [value.numel() * value.element_size() for value in affected]
        self.largest = max([1, *sizes])

    def losses(self, candidates: Candidates, tile: Span) -> Tensor:
        """The losses of a tile."""
        num = tile.end - tile.start
        changes = start_changes(candidates, tile)
        env = {self.record.sources[name]: change for name, change in changes.items()}
        later = self.carry_columns(env)
        return self.finish(env, later, self._pairs(env, later, num), num)

    def finish(
        self, env: dict[int, Change], later: list[Node], pairs: Pairs | None, num: int
    ) -> Tensor:
        """Carry changes through the rest of the record, up to the loss."""
        self._rest(env, later, pairs, num)
        result = env.get(self.record.result)
        return stack(self.base(self.record.result), result, num, pairs).values.reshape(num)

    def carry_columns(self, env: dict[int, Change]) -> list[Node]:
        """Carry columns as far as they go; returns the nodes that need more."""
        later: list[Node] = []
        waiting: set[int] = set()
        for node in self.nodes:
            if waiting.isdisjoint(node.inputs):
                changes = attempt(node, carry_columns, node, env, self.base, self.operators)
                if changes is not None:
                    env.update(zip(node.outputs, changes, strict=True))
                    continue
            later.append(node)
            waiting.update(node.outputs)
        return later

    def _pairs(self, env: Mapping[int, Change], later: list[Node], num: int) -> Pairs | None:
        """The (candidate, example) pairs in which any column leaving its axis differs."""
        exits = {i for node in later for i in node.inputs if isinstance(env.get(i), Column)}
        mask: Tensor | None = None
        for index in sorted(exits):
            column, value = env[index], self.base(index)
            assert isinstance(column, Column)
            if column.axis == 0 or value.dim() < 2:
                continue
            differs = changed_examples(value, column)
            if mask is None:
                mask = differs
            elif mask.shape == differs.shape:
                mask = mask | differs
        if mask is None:
            return None
        if not bool(mask.any()):
            mask[0, 0] = True  # operations on no examples at all are not always defined
        candidate, example = mask.nonzero(as_tuple=True)
        return Pairs(candidate, example, num, mask.shape[1])

    def _rest(
        self, env: dict[int, Change], later: list[Node], pairs: Pairs | None, num: int
    ) -> None:
        number = {node.outputs: n for n, node in enumerate(self.nodes)}
        for node in later:
            if any(index in env for index in node.inputs):
                results = None
                if pairs is not None:
                    given = (node, env, self.base, pairs, self.operators)
                    results = attempt(node, carry_examples, *given)
                if results is None:
                    known = self.operators[node.name]
                    results = attempt(node, carry_whole, node, known, env, self.base, pairs, num)
                env.update(zip(node.outputs, results, strict=True))
            for index in node.inputs:
                if self.last_use[index] == number[node.outputs]:
                    env.pop(index, None)


def start_changes(candidates: Candidates, tile: Span) -> dict[str, Change]:
    """What the candidates of a tile change about the searched tensors."""
    local = candidates.local(tile)
    if local is not None:
        return {name: Column(0, unit, rows) for name, (unit, rows) in local.items()}
    return {name: Stacked(value) for name, value in candidates.changed(tile).items()}


def attempt(node: Node, rule: Callable[..., Found], *arguments: Any) -> Found:
    """Apply a rule; whatever it cannot do is a reason to fall back, never to fail."""
    try:
        return rule(*arguments)
    except Refused:
        raise
    except Exception as error:
        if is_memory_error(error):
            raise
        raise Refused(f"{node.name}: {str(error)[:120]}") from error


def carry_whole(
    node: Node,
    known: KnowsChanges,
    env: Mapping[int, Change],
    base: Lookup,
    pairs: Pairs | None,
    num: int,
) -> tuple[Change, ...]:
    """Any operation, over one whole value per candidate."""
    if node.func is None:
        raise Refused("an operation in place has no functional form")
    everything = known.needs_all_batched
    changed = sorted({index for index in node.inputs if index in env or everything})
    place = {index: n for n, index in enumerate(changed)}

    def call(*values: Tensor) -> Any:
        def operand(leaf: Ref) -> Tensor:
            found = place.get(leaf.index)
            return base(leaf.index) if found is None else values[found]

        args, kwargs = node.filled(operand)
        return node.func(*(known.whole(args) if known.whole else args), **kwargs)

    inputs = [stack(base(i), env.get(i), num, pairs).values for i in changed]
    result = run_vmap(call, *inputs)
    outputs = result if isinstance(result, tuple | list) else (result,)
    return tuple(Stacked(out) for out in outputs)
