"""Carrying changes through a record, operation by operation."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.incremental.changes import (
    Change,
    Column,
    Pairs,
    Stacked,
    changed_rows,
    stacked,
)
from hardstep.evaluation.incremental.columns import column_rule
from hardstep.evaluation.incremental.rows import rows_rule
from hardstep.evaluation.incremental.vocabulary import SHAPE_ONLY
from hardstep.evaluation.memory import is_memory_error
from hardstep.evaluation.trace.record import Node, Record, Ref, Refused

Found = TypeVar("Found")


class Walk:
    """The part of a record between some parameters and the loss, to carry changes through."""

    def __init__(self, written: Record, sources: list[int]) -> None:
        self.record = written
        self.sources = sources
        self.nodes = _needed(_reached(written, sources), written.result)
        self.last_use = {i: n for n, node in enumerate(self.nodes) for i in node.inputs}
        affected = [self.base(i) for node in self.nodes for i in node.outputs]
        sizes = [value.numel() * value.element_size() for value in affected]
        self.largest = max([1, *sizes])

    def base(self, index: int) -> Tensor:
        """A recorded base value."""
        return self.record.values[index]

    def losses(self, candidates: Candidates, tile: Span) -> Tensor:
        """The losses of a tile."""
        num = tile.end - tile.start
        env = self._start(candidates, tile)
        later = self._columns(env)
        return self.finish(env, later, self._pairs(env, later, num), num)

    def finish(
        self, env: dict[int, Change], later: list[Node], pairs: Pairs | None, num: int
    ) -> Tensor:
        """Carry changes through the rest of the record, up to the loss."""
        self._rest(env, later, pairs, num)
        result = env.get(self.record.result)
        if result is None:
            return self.base(self.record.result).reshape(()).expand(num)
        return stacked(self.base(self.record.result), result, num, pairs).values.reshape(num)

    def _start(self, candidates: Candidates, tile: Span) -> dict[int, Change]:
        local = candidates.local(tile)
        if local is not None:
            return {
                self.record.sources[name]: Column(0, unit, rows)
                for name, (unit, rows) in local.items()
            }
        changed = candidates.changed(tile)
        return {self.record.sources[name]: Stacked(value) for name, value in changed.items()}

    def _columns(self, env: dict[int, Change]) -> list[Node]:
        """Carry columns as far as they go; returns the nodes that need more."""
        later: list[Node] = []
        waiting: set[int] = set()
        for node in self.nodes:
            if waiting.isdisjoint(node.inputs):
                change = self._try(node, column_rule, node, env, self.base)
                if change is not None:
                    env[node.outputs[0]] = change
                    continue
            later.append(node)
            waiting.update(node.outputs)
        return later

    @staticmethod
    def _try(node: Node, rule: Callable[..., Found], *arguments: Any) -> Found:
        """Apply a rule; whatever it cannot do is a reason to fall back, never to fail."""
        try:
            return rule(*arguments)
        except Refused:
            raise
        except Exception as error:
            if is_memory_error(error):
                raise
            raise Refused(f"{node.name}: {str(error)[:120]}") from error

    def _pairs(self, env: Mapping[int, Change], later: list[Node], num: int) -> Pairs | None:
        """The (candidate, row) pairs in which any column leaving its axis differs."""
        exits = {i for node in later for i in node.inputs if isinstance(env.get(i), Column)}
        mask: Tensor | None = None
        for index in sorted(exits):
            column, value = env[index], self.base(index)
            assert isinstance(column, Column)
            if column.axis == 0 or value.dim() < 2:
                continue
            differs = changed_rows(value, column)
            if mask is None:
                mask = differs
            elif mask.shape == differs.shape:
                mask = mask | differs
        if mask is None:
            return None
        if not bool(mask.any()):
            mask[0, 0] = True  # operations on no rows at all are not always defined
        candidate, row = mask.nonzero(as_tuple=True)
        return Pairs(candidate, row, num, mask.shape[1])

    def _rest(
        self, env: dict[int, Change], later: list[Node], pairs: Pairs | None, num: int
    ) -> None:
        number = {node.outputs: n for n, node in enumerate(self.nodes)}
        for node in later:
            if any(index in env for index in node.inputs):
                results = None
                if pairs is not None:
                    results = self._try(node, rows_rule, node, env, self.base, pairs)
                if results is None:
                    results = self._try(node, self._stacked, node, env, pairs, num)
                env.update(zip(node.outputs, results, strict=True))
            for index in node.inputs:
                if self.last_use[index] == number[node.outputs]:
                    env.pop(index, None)

    def _stacked(
        self, node: Node, env: Mapping[int, Change], pairs: Pairs | None, num: int
    ) -> tuple[Change, ...]:
        """Any operation, over one whole value per candidate."""
        if node.func is None:
            raise Refused("an operation in place has no functional form")
        changed = sorted({index for index in node.inputs if index in env})
        place = {index: n for n, index in enumerate(changed)}

        def call(*values: Tensor) -> Any:
            def operand(leaf: Ref) -> Tensor:
                found = place.get(leaf.index)
                return self.base(leaf.index) if found is None else values[found]

            args, kwargs = node.filled(operand)
            if node.name == "native_batch_norm" and args[5]:
                args[3:5] = None, None  # batch statistics: the running ones are only written
            return node.func(*args, **kwargs)

        inputs = [stacked(self.base(i), env[i], num, pairs).values for i in changed]
        result = vmap(call)(*inputs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        return tuple(Stacked(out) for out in outputs)


def _reached(written: Record, sources: list[int]) -> list[Node]:
    """The nodes that depend on the sources."""
    found, reached = [], set(sources)
    for node in written.nodes:
        if node.name in SHAPE_ONLY or reached.isdisjoint(node.inputs):
            continue
        if -1 in node.outputs:
            raise Refused(f"a value that depends on it reaches Python through {node.name}")
        if _shape_follows(node, reached, written):
            raise Refused(f"the shape of what {node.name} returns depends on it")
        found.append(node)
        reached.update(node.outputs)
    return found


@cache
def _chooses_its_shape(func: Any) -> bool:
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def _shape_follows(node: Node, reached: set[int], written: Record) -> bool:
    """Whether values that depend on the sources decide how much there is of the result."""
    if not _chooses_its_shape(node.func):
        return False
    if node.name != "index":
        return True
    masks = [ref.index for ref in node.args[1] if isinstance(ref, Ref)]
    truths = (torch.bool, torch.uint8)
    return any(index in reached and written.values[index].dtype in truths for index in masks)


def _needed(nodes: list[Node], result: int) -> list[Node]:
    """Those of them that the result depends on: models keep records that no loss looks at."""
    found, needed = [], {result}
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]
