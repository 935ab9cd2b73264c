"""One forward pass, written down: every operation torch carried out, with its base values.

Recording happens below autograd, where ordinary model code (loops, in-place updates, custom
functions) has become a small vocabulary of aten operations. The model runs as it always does;
nothing is traced symbolically, and branches on values are seen as reads of a value by Python.
"""

import math
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import torch
from torch import Tensor

from hardstep._torch import list_watchers, undispatched, unseen
from hardstep.evaluation.memory import DispatchMode, find_written
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate, reseed, show_parts
from hardstep.evaluation.trace.exits import NoExits
from hardstep.evaluation.trace.nodes import (
    Later,
    Node,
    Passage,
    Record,
    Ref,
    Refused,
    TooLarge,
    Values,
)
from hardstep.evaluation.trace.overlap import are_apart
from hardstep.evaluation.trace.traits import describe, functional_form

_STALE = -1  # the number of a tensor whose memory was written to under another name


def record(
    problem: Problem,
    base: Mapping[str, Tensor],
    seed: int,
    memory_budget: float = math.inf,
    costly: Container[str] = (),
) -> Record:
    """Run the base forward pass and write it down.

    Args:
        problem: What is computed.
        base: The searched tensors.
        seed: Of the random numbers.
        memory_budget: Bytes that the values kept may take.
        costly: Names of operators whose results are copied rather than computed again.

    Raises:
        TooLarge: Its values take more memory than that.
        Refused: The model does something that cannot be followed.
    """
    recorder = Recorder(memory_budget, costly)
    # Fresh objects, so that a parameter used elsewhere under its own name is not confused.
    tensors = {name: tensor.detach() for name, tensor in base.items()}
    sources = {name: recorder.number(tensor) for name, tensor in tensors.items()}
    recorder.sources, recorder.reached = set(sources.values()), set(sources.values())
    recorder.fixed = {_storage(own) for own in problem.model.parameters() if own.numel()}
    with isolate(problem.model):
        with show_parts(), NoExits(recorder), recorder:
            reseed(seed)
            loss = problem.loss(tensors, problem.buffers())
        recorder.save_written()
    recorder.check_memory()  # again, should the model have caught the first refusal
    if id(loss) not in recorder.numbers:
        raise Refused("the loss was not computed by torch operations")
    return Record(
        tuple(recorder.nodes),
        Values(recorder.values),
        sources,
        recorder.numbers[id(loss)],
        recorder.nbytes,
        "\n".join([*recorder.signature, *map(_form, recorder.values)]),
        frozenset(recorder.unrolled),
    )


class Recorder(DispatchMode):
    """Writes down what runs inside of it."""

    def __init__(self, memory_budget: float, costly: Container[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory_budget, self.costly = memory_budget, costly
        self.nbytes = 0  # of the values kept, except what was there before
        self.nodes: list[Node] = []
        self.values: list[Tensor | Later] = []
        self.refs: list[Ref] = []  # to these
        self.numbers: dict[int, int] = {}  # id of a tensor object -> its current value
        self.kept: list[Tensor] = []  # keeps ids from being reused
        self.owners: dict[int, list[Tensor]] = {}  # storage -> tensor objects seen on it
        self.sources: set[int] = set()
        self.reached: set[int] = set()  # values that may depend on them
        self.fixed: set[int] = set()  # storages of parameters, those that are not searched included
        self.seen: dict[str, tuple[int, ...]] = {}  # operation and operands -> results
        self.signature: list[str] = []
        self.in_layer = False
        self.unrolled: set[int] = set()
        self.reads_numbers = False  # so that a number may be another in the next step
        self.lifted: dict[tuple[str, torch.dtype], Ref] = {}
        self.own: set[int] = set()  # storages made during the pass
        self.written: set[int] = set()  # storages of others that it wrote to

    def number(self, tensor: Tensor) -> int:
        """The value a tensor object holds now; unknown ones become constants."""
        known = self.numbers.get(id(tensor))
        return self._new(tensor) if known is None else known

    def refuse(self, reason: str) -> NoReturn:
        """Give up."""
        raise Refused(reason)

    def is_reached(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory may hold numbers that depend on a searched tensor."""
        owners = self.owners.get(_storage(tensor), [])
        numbers = {self.numbers[id(owner)] for owner in owners}
        return _STALE in numbers or not numbers.isdisjoint(self.reached)

    def _new(self, tensor: Tensor) -> int:
        return self._know(tensor, self._list(tensor), _storage(tensor))

    def _list(self, value: Tensor | Later) -> int:
        number = len(self.values)
        self.values.append(value)
        self.refs.append(Ref(number))
        return number

    def _made(self, tensor: Tensor, number: int | None = None) -> int:
        """A result, unlike an argument, takes memory of ours unless it is a view."""
        with unseen():  # once: torch takes its time to look away
            memory = tensor.untyped_storage()
            storage, size = memory.data_ptr(), memory.nbytes()
        if storage not in self.owners:
            self.own.add(storage)
            self._count(size)
        if number is None:
            number = self._list(tensor)
        return self._know(tensor, number, storage)

    def _count(self, size: int) -> None:
        self.nbytes += size
        if self.nbytes > self.memory_budget:
            self.check_memory()

    def _replace(self, index: int, owner: Tensor) -> None:
        """Keep what an object holds now."""
        copy = self.values[index] = owner.clone()
        with unseen():
            self._count(copy.untyped_storage().nbytes())

    def check_memory(self) -> None:
        """Drop everything and refuse once the values kept exceed the budget."""
        if self.nbytes <= self.memory_budget:
            return
        for kept in (self.nodes, self.values, self.kept, self.owners, self.numbers, self.seen):
            kept.clear()
        raise TooLarge(
            f"the forward pass keeps more than {self.memory_budget / 1e6:,.6g} MB of values, the "
            "memory budget; a larger memory_budget or a smaller batch would make it faster"
        )

    def _know(self, tensor: Tensor, number: int, storage: int) -> int:
        """From now on this object holds that value."""
        self.numbers[id(tensor)] = number
        self.kept.append(tensor)
        self.owners.setdefault(storage, []).append(tensor)
        return number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[int] = []
        refs = tuple([self._ref(argument, found) for argument in args])
        ref_kwargs = {name: self._ref(value, found) for name, value in kwargs.items()}
        called = func
        if self.reads_numbers:
            called, refs = self._lift_numbers(func, args, refs, found)
        inputs, traits = tuple(found), describe(called)
        written = find_written(func, args, kwargs) if traits.writes else []
        for tensor in written:
            self._before_write(tensor)
        # A loop over time computes the same things again and again; they are one value.
        repeatable = not written and not traits.is_random
        key = f"{traits.text} {refs} {ref_kwargs}"
        again = repeatable and key in self.seen
        known = self.values[self.seen[key][0]] if again else None
        if isinstance(known, Tensor) and traits.name in self.costly:
            result = known.clone()  # the model may write to what it gets
        else:
            result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        if again:
            for out, number in zip(outputs, self.seen[key], strict=True):
                if isinstance(out, Tensor):
                    self._made(out, number)
            return result
        numbers = tuple([self._made(out) if isinstance(out, Tensor) else -1 for out in outputs])
        self.reads_numbers |= -1 in numbers
        if self.in_layer:
            self.unrolled.update(numbers)
        if not self.reached.isdisjoint(inputs):
            self.reached.update(numbers)
        functional = functional_form(called) if written else called
        name = describe(functional or called).name
        self.nodes.append(Node(name, functional, refs, ref_kwargs, inputs, numbers))
        self.signature.append(key)
        if repeatable and "empty" not in name:
            self.seen[key] = numbers
        return result

    def refer(self, tensor: Tensor) -> Ref:
        """The value that a tensor holds now, as an argument of `write`."""
        ref: Ref = self._ref(tensor, [])
        return ref

    def write(self, func: Any, *args: Any, made: Tensor | Later, **kwargs: Any) -> Ref:
        """Write down an operation that a layer has carried out together with others.

        Args:
            func: The operation, which writes to nothing and draws nothing.
            args: What it was given; values by reference.
            made: Its result, or what is needed to compute it should it be asked for.
            kwargs: What it was given by name.
        """
        traits = describe(func)
        key = f"{traits.text} {args} {kwargs}"
        if key in self.seen:
            (number,) = self.seen[key]
        else:
            inputs = tuple([ref.index for ref in args if isinstance(ref, Ref)])
            number = self._list(made)
            if not self.reached.isdisjoint(inputs):
                self.reached.add(number)
            self.nodes.append(Node(traits.name, func, args, kwargs, inputs, (number,)))
            self.signature.append(key)
            self.seen[key] = (number,)
        if isinstance(made, Tensor):
            self._made(made, number)
        else:  # as much as if it was there: soon it may be
            self._count(made.shape.numel() * made.dtype.itemsize)
        return self.refs[number]

    def copy_from(self, place: int, first: int, made: Sequence[Tensor]) -> Passage:
        """What `write` has written since there were so many nodes and values, all of it new."""
        values = [value if isinstance(value, Later) else None for value in self.values[first:]]
        keys = self.signature[place:]
        return Passage(
            tuple(self.nodes[place:]),
            tuple(values),
            tuple(self.refs[first:]),
            tuple([self.numbers[id(tensor)] for tensor in made]),
            tuple([ref.index for ref in self.refs[first:] if ref.index in self.reached]),
            {key: self.seen[key] for key in keys},
            sum(value.shape.numel() * value.dtype.itemsize for value in values if value),
        )

    def append(self, passage: Passage, made: Sequence[Tensor]) -> None:
        """Write a passage down again, with the values that were made this time."""
        self.nodes += passage.nodes
        self.values += passage.values  # type: ignore[arg-type]  # those missing follow
        self.refs += passage.refs
        self.reached.update(passage.reached)
        self.seen.update(passage.seen)
        self.signature += passage.seen
        for number, tensor in zip(passage.made, made, strict=True):
            self.values[number] = tensor
            self._made(tensor, number)
        self._count(passage.nbytes)

    def _ref(self, argument: Any, found: list[int]) -> Any:
        """The argument with references for tensors, whose numbers are added to `found`."""
        if isinstance(argument, list | tuple):  # never deep, so no need for torch's tree_map
            return [self._ref(item, found) for item in argument]
        if not isinstance(argument, Tensor):
            return argument
        index = self.number(argument)
        if index == _STALE:
            raise Refused("the forward pass reads a tensor after writing to a view of it")
        found.append(index)
        return self.refs[index]

    def _lift_numbers(
        self, func: Any, args: Any, refs: tuple[Any, ...], found: list[int]
    ) -> tuple[Any, tuple[Any, ...]]:
        """An operation with values in place of numbers: what Python read differs from step to step.

        As an argument, every number of it would need a kernel of its own.
        """
        types = {arg.dtype for arg in args if isinstance(arg, Tensor)}
        if not types <= {torch.float32, torch.float64} or len(types) != 1:
            return func, refs
        (dtype,) = types

        def lift(argument: Any) -> Any:
            if not isinstance(argument, float | int) or isinstance(argument, bool):
                return argument
            key = (repr(argument), dtype)  # which tells zeros of either sign apart
            if key not in self.lifted:
                with undispatched():
                    self.lifted[key] = self.refs[self._new(torch.tensor(argument, dtype=dtype))]
            found.append(self.lifted[key].index)
            return self.lifted[key]

        packet = func.overloadpacket
        if func._overloadname == "Scalar" and len(refs) == 2 and hasattr(packet, "Tensor"):
            func = packet.Tensor
        places = zip(func._schema.arguments, refs, strict=False)
        taken = [str(argument.type) == "Tensor" for argument, _ in places]
        pairs = zip(refs, taken, strict=True)
        return func, tuple(lift(ref) if tensor else ref for ref, tensor in pairs)

    def _before_write(self, tensor: Tensor) -> None:
        """Save what is about to be overwritten; tensors that share its memory become stale."""
        self.number(tensor)
        storage = _storage(tensor)
        if storage not in self.own:
            self.written.add(storage)
        owners = {id(t): t for t in self.owners[storage]}.values()
        sources = any(self.numbers[id(owner)] in self.sources for owner in owners)
        if sources or storage in self.fixed:
            raise Refused("the forward pass writes into a parameter")
        for owner in owners:
            if owner is not tensor and are_apart(owner, tensor):
                continue
            index = self.numbers[id(owner)]
            if index != _STALE:
                self._replace(index, owner)
            if owner is not tensor:
                self.numbers[id(owner)] = _STALE

    def save_written(self) -> None:
        """Keep what state holds now: it is about to be put back as it was."""
        for owner in (tensor for storage in self.written for tensor in self.owners[storage]):
            index = self.numbers[id(owner)]
            if index != _STALE:
                self._replace(index, owner)


def find_recorder() -> Recorder | None:
    """Who writes down what runs here, if nobody else watches, and no number is read on the way."""
    match list_watchers():
        case [Recorder() as recorder, NoExits()] if not recorder.reads_numbers:
            return recorder
        case _:
            return None


def _form(value: Tensor | Later) -> str:
    return _show_form(value.shape, value.dtype)


@lru_cache(maxsize=4096)
def _show_form(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{tuple(shape)} {dtype}"


def _storage(tensor: Tensor) -> int:
    with unseen():
        return tensor.untyped_storage().data_ptr()
