"""Changes that follow a forward pass while it runs: no record is kept, only what is alive.

Every operation of the base's pass is carried out for the changes of its arguments, too, by the
rules of the incremental tier. A change is dropped together with the tensor whose value it changes,
so that memory does not grow with the number of operations. Each tile of candidates has a *lane*.
"""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from hardstep._torch import Outside, storage_key, unseen
from hardstep.evaluation.candidates import Candidates
from hardstep.evaluation.incremental.changes import Stacked, stack
from hardstep.evaluation.incremental.lanes import Lane, Operators
from hardstep.evaluation.incremental.merge import Held
from hardstep.evaluation.memory import DispatchMode, count_operations, find_written
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate, reseed
from hardstep.evaluation.trace.exits import NoExits
from hardstep.evaluation.trace.nodes import Node, Ref, Refused
from hardstep.evaluation.trace.traits import functional_form

STALE = "the forward pass reads a tensor after writing to a view of it"
WRITES = "the forward pass writes into a parameter"


class _Storage:
    """Memory in which changed values are: who may read it, and for whom it is lost."""

    def __init__(self) -> None:
        self.version = 0  # grows when it is written to
        self.lanes: set[Lane] = set()


class Stream(DispatchMode):
    """Carries changes of lanes along with every operation."""

    reads_numbers = False  # numbers that Python read are those of every lane
    in_layer = False

    def __init__(
        self, lanes: Iterable[Lane], fixed: Iterable[Tensor], operators: Operators
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lanes, self.operators = list(lanes), operators
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
        if self.operators[node.name].shape_only:
            return found
        outputs = result if isinstance(result, tuple | list) else (result,)
        base = [*call.values, *outputs].__getitem__
        operations = count_operations(call.func, call.args, call.kwargs, result)
        for lane in list(self.lanes):
            own = {index: one[lane] for index, one in enumerate(held) if one and lane in one}
            try:
                results = lane.advance(node, own, base, operations) if own else {}
            except Refused as reason:
                self._give_up(lane, str(reason))
                continue
            for index, one in results.items():
                found.setdefault(index, {})[lane] = one
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
            self.refuse(WRITES)
        for tensor in call.tensors:
            memory = self.storages.get(_storage_key(tensor))
            if memory is not None and self.versions.get(tensor) != memory.version:
                for lane in [lane for lane in self.lanes if lane in memory.lanes]:
                    self._give_up(lane, STALE)

    def refuse(self, reason: str) -> NoReturn:
        """Give up all lanes, whether or not the model minds."""
        for lane in list(self.lanes):
            self._give_up(lane, reason)
        raise Refused(reason)

    def is_reached(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory holds, or held, what a lane changed."""
        return _storage_key(tensor) in self.storages

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


def follow(
    problem: Problem, candidates: Candidates, lanes: list[Lane], operators: Operators
) -> Tensor:
    """Run the base's forward pass; lanes find their losses, or reasons why not.

    Returns:
        The base's loss.

    Raises:
        Refused: No lane can be followed.
    """
    sources = {name: tensor.detach() for name, tensor in candidates.base.items()}
    stream = Stream(lanes, problem.model.parameters(), operators)
    try:
        with isolate(problem.model), NoExits(stream), stream:
            reseed(candidates.seed)
            stream.begin(sources)
            loss: Tensor = problem.loss(sources, problem.buffers())
        stream.end(loss)
    finally:
        stream.clear()
    return loss


def _storage_key(tensor: Tensor) -> int:
    with unseen():
        return storage_key(tensor.untyped_storage())
