"""The evaluator that computes what candidates change, and nothing else.

Per step: record one base forward pass. Per tile of candidates of one block: carry their
changes through the record, as columns while they stay columns, then as rows for the examples
whose columns really differ, and as whole values only where no rule applies. A block that the
rules cannot follow is evaluated in batches, and `notes` says why.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.func import vmap

from hardstep.errors import ConfigError, HardstepError
from hardstep.evaluation.base import Problem
from hardstep.evaluation.batched import Batched
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.fused import Kernel, Plan, Tables, Unfusable, plan
from hardstep.evaluation.incremental.changes import (
    Change,
    Column,
    Pairs,
    Stacked,
    changed_rows,
    stacked,
)
from hardstep.evaluation.incremental.columns import column_rule
from hardstep.evaluation.incremental.record import Node, Record, Ref, Refused, record
from hardstep.evaluation.incremental.rows import rows_rule
from hardstep.evaluation.incremental.vocabulary import SHAPE_ONLY
from hardstep.evaluation.memory import halving, is_memory_error

Found = TypeVar("Found")

TILE_BYTES = 32 << 20  # the largest value of a tile, if every row of it changed
MAX_TILE = 1024


class Incremental:
    """Exact losses from what a probe changes; the default.

    Args:
        memory_budget: Bytes that the record may keep, and that the largest value of a tile may
            take (several are alive at once). A forward pass that keeps more is not recorded.
        fallback: What evaluates blocks that the rules cannot follow.
        fused: Whether to compile kernels where they apply (on the CPU).
    """

    def __init__(
        self,
        memory_budget: int = 1 << 30,
        fallback: Batched | None = None,
        fused: bool = True,
    ) -> None:
        if memory_budget < 1:
            raise ConfigError(f"Incremental: memory_budget must be positive, got {memory_budget}")
        self.memory_budget = memory_budget
        self.fallback = fallback if fallback is not None else Batched(memory_budget=memory_budget)
        self.fused = fused
        self.notes: dict[tuple[str, ...], str] = {}
        self._plans: dict[tuple[str, int], Plan | str] = {}

    def __repr__(self) -> str:
        return f"Incremental(memory_budget={self.memory_budget})"

    @property
    def note(self) -> str:
        """How the last step was evaluated, in a line."""
        fast = {"fused": "incremental, fused", "incremental": "incremental"}
        slow = {names: why for names, why in self.notes.items() if why not in fast}
        if not slow:
            every = all(why == "fused" for why in self.notes.values())
            return fast["fused" if every else "incremental"]
        names, why = next(iter(slow.items()))
        return f"{len(slow)} of {len(self.notes)} blocks not incremental; {names[0]}: {why}"

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """Losses block by block."""
        written = self._record(candidates, problem)
        if isinstance(written, str):
            return self._without(candidates, problem, written)
        pieces = []
        tables = Tables(written)
        for span in candidates.spans():
            names = candidates.subspace.blocks[span.block].names
            try:
                walk = Walk(written, [written.sources[name] for name in names])
                losses = self._fuse(candidates, walk, span, tables)
                self.notes[names] = "incremental" if losses is None else "fused"
                pieces.append(self._block(candidates, walk, span) if losses is None else losses)
            except Refused as reason:
                self.notes[names] = str(reason)
                pieces.append(self.fallback.losses(candidates, problem, [span]))
        return torch.cat(pieces)

    def _record(self, candidates: Candidates, problem: Problem) -> Record | str:
        """The record, or why there is none (an exception would keep its values alive)."""
        try:
            return record(problem, candidates.base, candidates.seed, self.memory_budget)
        except HardstepError:
            raise
        except Refused as reason:
            return str(reason)
        except Exception as reason:  # a real fault of the model raises again in the fallback
            return f"{type(reason).__name__}: {reason}"

    def _without(self, candidates: Candidates, problem: Problem, reason: str) -> Tensor:
        self.notes = {block.names: reason for block in candidates.subspace.blocks}
        return self.fallback.losses(candidates, problem)

    def _fuse(
        self, candidates: Candidates, walk: "Walk", span: Span, tables: Tables
    ) -> Tensor | None:
        """Losses from a compiled kernel, or nothing where there is none."""
        planned = self._plan(candidates, walk, span)
        if isinstance(planned, str):
            return None
        kernel = Kernel(planned, tables)
        pieces = []
        for tile in span.tiles(kernel.tile_size(candidates.offsets.shape)):
            try:
                sums = kernel.sums(candidates, tile)
            except Unfusable:  # of these candidates, not of the operations
                return None
            env: dict[int, Change] = {index: Stacked(total) for index, total in sums.items()}
            pieces.append(walk.finish(env, planned.after, None, tile.end - tile.start))
        return torch.cat(pieces)

    def _plan(self, candidates: Candidates, walk: "Walk", span: Span) -> Plan | str:
        """A block's plan, made once for the same operations, or why there is none."""
        if not self.fused:
            return "switched off"
        key = (walk.record.signature, span.block)
        if key not in self._plans:
            try:
                self._plans[key] = plan(candidates, walk.record, walk.nodes, span)
            except Unfusable as reason:
                self._plans[key] = str(reason)
        return self._plans[key]

    def _block(self, candidates: Candidates, walk: "Walk", span: Span) -> Tensor:
        size = min(MAX_TILE, max(1, TILE_BYTES // walk.largest))
        size = max(1, min(size, self.memory_budget // walk.largest))
        run = partial(walk.losses, candidates)
        return torch.cat([halving(run, tile) for tile in span.tiles(size)])


class Walk:
    """The part of a record that some parameters reach, ready to carry changes through."""

    def __init__(self, written: Record, sources: list[int]) -> None:
        self.record = written
        self.sources = sources
        self.nodes: list[Node] = []
        reached = set(sources)
        for node in written.nodes:
            if node.name in SHAPE_ONLY or not reached.intersection(node.inputs):
                continue
            if -1 in node.outputs:
                raise Refused(f"a value that depends on it reaches Python through {node.name}")
            self.nodes.append(node)
            reached.update(node.outputs)
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
