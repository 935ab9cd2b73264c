"""Changes that follow a forward pass while it runs: no record is kept, only what is alive.

Every operation of the base's pass is carried out for the changes of its arguments, too, by the
rules of the incremental tier. A change is dropped together with the tensor whose value it changes,
so that memory does not grow with the number of operations. Each tile of candidates has a *lane*.
"""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from hardstep._torch import Outside, storage_key, unseen
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.incremental.changes import (
    Change,
    Examples,
    Stacked,
    changed_examples,
    stack,
)
from hardstep.evaluation.incremental.examples import carry_examples
from hardstep.evaluation.incremental.merge import HARD, Held, find_pairs, join, narrow, widen
from hardstep.evaluation.incremental.walk import attempt, carry_whole, start_changes
from hardstep.evaluation.memory import DispatchMode, count_operations, find_written
from hardstep.evaluation.objectives import Problem
from hardstep.evaluation.ops.columns import Column, Lookup, column_rule
from hardstep.evaluation.sandbox import isolate, reseed
from hardstep.evaluation.trace.record import Node, NoExits, Ref, Refused, functional_form
from hardstep.evaluation.trace.slice import SHAPE_ONLY, check_visible

STALE = "the forward pass reads a tensor after writing to a view of it"
WRITES = "the forward pass writes into a parameter"


class Lane:
    """A tile on its way through a forward pass."""

    def __init__(self, candidates: Candidates, tile: Span) -> None:
        self.tile, self.num = tile, tile.end - tile.start
        self.changes = start_changes(candidates, tile)  # of the searched tensors
        self.work = 0.0  # operations so far
        self.reason = ""  # why it was given up
        self.losses: Tensor | None = None

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


class _Storage:
    """Memory in which changed values are: who may read it, and for whom it is lost."""

    def __init__(self) -> None:
        self.version = 0  # grows when it is written to
        self.lanes: set[Lane] = set()


class Stream(DispatchMode):
    """Carries changes of lanes along with every operation."""

    def __init__(self, lanes: Iterable[Lane], fixed: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lanes = list(lanes)
        self.changes: Any = WeakTensorKeyDictionary()  # tensor -> lane -> held
        self.versions: Any = WeakTensorKeyDictionary()  # of storages, when a tensor was last right
        self.storages: dict[int, _Storage] = {}
        self.watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.fixed = {_storage_key(tensor) for tensor in fixed}
        self.outside = Outside()

    def begin(self, sources: Mapping[str, Tensor]) -> None:
        """Let the lanes' changes enter at the searched tensors."""
        for name, tensor in sources.items():
            held = {one: Held(one.changes[name]) for one in self.lanes if name in one.changes}
            self.fixed.add(_storage_key(tensor))
            self._assign(tensor, held)
        for lane in self.lanes:
            lane.changes = {}

    def end(self, loss: Tensor) -> None:
        """Give the lanes their losses."""
        held = self.changes.get(loss, {})
        for lane in self.lanes:
            change, pairs = held.get(lane, Held(Stacked(loss.expand(lane.num, *loss.shape))))
            lane.losses = stack(loss, change, lane.num, pairs).values.reshape(lane.num)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = _Call(func, args, kwargs)
        self._check_readable(call)
        held = [self.changes.get(tensor) for tensor in call.tensors]
        if any(held):
            call.keep_overwritten()
        result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        found = {}
        if any(held):
            with self.outside.enter():
                found = self._carry(call.node(outputs), held, call, result)
        for tensor in call.written:
            self._note_write(tensor)
        for number, out in enumerate(outputs, len(held)):
            if isinstance(out, Tensor):
                self._assign(out, found.get(number, {}))
        return result

    def _carry(
        self, node: Node, held: list[dict[Lane, Held] | None], call: "_Call", result: Any
    ) -> dict[int, dict[Lane, Held]]:
        """Every lane's changes of a node's results."""
        found: dict[int, dict[Lane, Held]] = {}
        if node.name in SHAPE_ONLY:
            return found
        outputs = result if isinstance(result, tuple | list) else (result,)
        base = [*call.values, *outputs].__getitem__
        operations = count_operations(call.func, call.args, call.kwargs, result)
        for lane in list(self.lanes):
            own = {index: one[lane] for index, one in enumerate(held) if one and lane in one}
            try:
                results = lane.carry(node, own, base) if own else {}
            except Refused as reason:
                self._give_up(lane, str(reason))
                continue
            for index, one in results.items():
                if index == node.outputs[0]:
                    lane.work += operations * _share(one, base(index)) / _depth(node, own, base)
                kept = narrow(base(index), one) if node.name in HARD else one
                if kept is not None:
                    found.setdefault(index, {})[lane] = kept
        return found

    def _assign(self, tensor: Tensor, changes: dict[Lane, Held]) -> None:
        """From now on the tensor holds a value with these changes."""
        key = _storage_key(tensor)
        if changes:
            self._storage(tensor).lanes.update(changes)
            self.changes[tensor] = changes
        else:
            self.changes.pop(tensor, None)
        if key in self.storages:
            self.versions[tensor] = self.storages[key].version

    def _storage(self, tensor: Tensor) -> _Storage:
        with unseen():
            storage = tensor.untyped_storage()
        key = storage_key(storage)
        if key not in self.storages:
            self.storages[key] = _Storage()

            def forget(_: object) -> None:
                del self.storages[key], self.watches[key]

            self.watches[key] = weakref.ref(storage, forget)
        return self.storages[key]

    def _note_write(self, tensor: Tensor) -> None:
        """Other tensors in the memory that was written to do not say any more what is there."""
        if _storage_key(tensor) in self.storages or tensor in self.changes:
            self._storage(tensor).version += 1

    def _check_readable(self, call: "_Call") -> None:
        """Give up lanes that changed what is in the memory of a tensor, under another name."""
        if any(_storage_key(tensor) in self.fixed for tensor in call.written):
            for lane in list(self.lanes):
                self._give_up(lane, WRITES)
            raise Refused(WRITES)
        for tensor in call.tensors:
            memory = self.storages.get(_storage_key(tensor))
            if memory is not None and self.versions.get(tensor) != memory.version:
                for lane in [lane for lane in self.lanes if lane in memory.lanes]:
                    self._give_up(lane, STALE)

    def clear(self) -> None:
        """Let go of everything."""
        for kept in (self.lanes, self.changes, self.versions, self.storages, self.watches):
            kept.clear()

    def _give_up(self, lane: Lane, reason: str) -> None:
        lane.reason = reason
        self.lanes.remove(lane)
        for held in self.changes.values():
            held.pop(lane, None)


class _Call:
    """An operation about to be carried out, with references in place of tensors."""

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.tensors: list[Tensor] = []
        self.inputs: list[int] = []
        self.refs = tuple(self._number(argument) for argument in args)
        self.ref_kwargs = {name: self._number(value) for name, value in kwargs.items()}
        self.values = list(self.tensors)  # that changes refer to
        self.written = find_written(func, args, kwargs)

    def _number(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self._number(item) for item in argument]
        if not isinstance(argument, Tensor):
            return argument
        places = [n for n, tensor in enumerate(self.tensors) if tensor is argument]
        if not places:
            self.tensors.append(argument)
        self.inputs.append(places[0] if places else len(self.tensors) - 1)
        return Ref(self.inputs[-1])

    def keep_overwritten(self) -> None:
        """Save values that the operation is about to write over."""
        for number, tensor in enumerate(self.tensors):
            if any(tensor is one for one in self.written):
                self.values[number] = tensor.clone()

    def node(self, outputs: Sequence[Any]) -> Node:
        """The operation as a record has it."""
        func = functional_form(self.func) if self.written else self.func
        name = str((func or self.func).overloadpacket.__name__)
        numbers = [n if isinstance(out, Tensor) else -1 for n, out in enumerate(outputs)]
        results = tuple(n + len(self.tensors) if n >= 0 else -1 for n in numbers)
        return Node(name, func, self.refs, self.ref_kwargs, tuple(self.inputs), results)


def follow(problem: Problem, candidates: Candidates, lanes: list[Lane]) -> Tensor:
    """Run the base's forward pass; lanes find their losses, or reasons why not.

    Returns:
        The base's loss.

    Raises:
        Refused: No lane can be followed.
    """
    sources = {name: tensor.detach() for name, tensor in candidates.base.items()}
    stream = Stream(lanes, problem.model.parameters())
    try:
        with isolate(problem.model), NoExits(), stream:
            reseed(candidates.seed)
            stream.begin(sources)
            loss: Tensor = problem.loss(sources, problem.buffers())
        stream.end(loss)
    finally:
        stream.clear()
    return loss


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


def _storage_key(tensor: Tensor) -> int:
    with unseen():
        return storage_key(tensor.untyped_storage())
