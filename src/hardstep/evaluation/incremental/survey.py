"""What the changes of each block may take on their way through a forward pass.

One pass, of the base alone: which values depend on a block, how much of them is alive together,
and how many operations they take. With it tiles are cut before the first candidate is evaluated.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from hardstep._torch import storage_key, unseen
from hardstep.evaluation.candidates import Candidates
from hardstep.evaluation.memory import DispatchMode, count_operations
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate, reseed
from hardstep.evaluation.trace.exits import NoExits
from hardstep.evaluation.trace.nodes import Refused

Flags = NDArray[np.bool_]  # of every block


@dataclass(frozen=True)
class Reach:
    """Of every block, if all that depends on it changed; and of the base."""

    nbytes: NDArray[np.int64]  # alive at once, of a candidate
    largest: NDArray[np.int64]  # bytes of one value
    work: NDArray[np.float64]  # operations of a candidate
    base_bytes: int
    base_work: float


def survey(problem: Problem, candidates: Candidates) -> Reach:
    """Run the base's forward pass, and see what depends on which block.

    Raises:
        Refused: The forward pass leaves torch.
    """
    sources = {name: tensor.detach() for name, tensor in candidates.base.items()}
    names = [block.names for block in candidates.subspace.blocks]
    watch = _Survey(sources, names)
    with isolate(problem.model), NoExits(watch), watch:
        reseed(candidates.seed)
        problem.loss(sources, problem.buffers())
    return watch.reach()


class _Survey(DispatchMode):
    reads_numbers = False
    in_layer = False

    def __init__(self, sources: Mapping[str, Tensor], names: Sequence[Sequence[str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.none = np.zeros(len(names) + 1, dtype=bool)  # the last stands for the base
        self.none[-1] = True
        self.reached: Any = WeakTensorKeyDictionary()  # tensor -> flags
        for name, tensor in sources.items():
            own = np.array([name in block for block in names] + [True])
            self.reached[tensor] = own
        self.searched = {_key(tensor) for tensor in sources.values()}  # of these, rows may change
        self.alive: dict[int, tuple[int, Flags]] = {}  # storages made inside
        self.watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.now = np.zeros(len(names) + 1, dtype=np.int64)
        self.peak, self.largest = self.now.copy(), self.now.copy()
        self.work = np.zeros(len(names) + 1)

    def refuse(self, reason: str) -> NoReturn:
        """Give up."""
        raise Refused(reason)

    def is_reached(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory may hold numbers that depend on a block."""
        _, flags = self.alive.get(_key(tensor), (0, self.none))
        return _key(tensor) in self.searched or bool(flags[:-1].any())

    def reach(self) -> Reach:
        """What was seen."""
        base = int(self.peak[-1]), float(self.work[-1])
        return Reach(self.peak[:-1], self.largest[:-1], self.work[:-1], *base)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = _tensors((*args, *kwargs.values()))
        made = _tensors((result,))
        reached = [self.reached.get(tensor, self.none) for tensor in read]
        flags: Flags = np.logical_or.reduce([self.none, *reached])
        given = {_key(tensor) for tensor in read}
        for tensor in made:
            self._see(tensor, flags, _key(tensor) in given)
        self.work += flags * float(count_operations(func, args, kwargs, result))
        # Operands that do not depend on a block are gathered for it; others may be, one by one.
        front = {tensor.shape[:1] for tensor in made}
        beside = np.zeros_like(self.now)
        for tensor, own in zip(read, reached, strict=True):
            if tensor.shape[:1] in front and _key(tensor) not in self.searched:
                beside = np.maximum(beside, _size(tensor)) + _size(tensor) * ~own
        beside[-1] = 0
        self.peak = np.maximum(self.peak, (self.now + beside) * flags)
        return result

    def _see(self, tensor: Tensor, flags: Flags, is_given: bool) -> None:
        """A result: it may be new, a view, or something that was written to."""
        if flags[:-1].any():
            self.reached[tensor] = flags
        with unseen():
            storage = tensor.untyped_storage()
        key = storage_key(storage)
        if key not in self.searched:
            self.largest = np.maximum(self.largest, flags * _size(tensor))
        nbytes, before = self.alive.get(key, (0, np.zeros_like(flags)))
        if not nbytes:
            if is_given:
                return  # made outside
            self.watches[key] = weakref.ref(storage, partial(self._free, key))
        nbytes = nbytes or storage.nbytes()
        self.now += nbytes * (flags & ~before)
        self.alive[key] = nbytes, flags | before

    def _free(self, key: int, _: object) -> None:
        nbytes, flags = self.alive.pop(key)
        self.now -= nbytes * flags
        del self.watches[key]


def _tensors(items: Sequence[Any]) -> list[Tensor]:
    found = []
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            found += _tensors(item)
    return found


def _key(tensor: Tensor) -> int:
    with unseen():
        return storage_key(tensor.untyped_storage())


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
