"""What a forward pass takes, and what to do when a tile does not fit: try its halves."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.trace.dispatch import DispatchMode


class LiveBytes(DispatchMode):
    """Measures the memory of tensors that are made inside: `now`, and at most, `peak`.

    Exact for what the operations return, on any device; what a kernel takes for itself while it
    runs is not seen. A storage counts once, however many views there are of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}  # storages made inside and still alive
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            key = storage._cdata
            if key not in self._sizes:
                if key in given:  # made outside
                    continue
                self._sizes[key] = 0
                self._watches[key] = weakref.ref(storage, partial(self._freed, key))
            self.now += storage.nbytes() - self._sizes[key]
            self._sizes[key] = storage.nbytes()
        self.peak = max(self.peak, self.now)
        return result

    def _freed(self, key: int, _: object) -> None:
        self.now -= self._sizes.pop(key)
        del self._watches[key]


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    with torch._C.DisableTorchFunction():
        return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def changed_bytes(candidates: Candidates, span: Span) -> int:
    """What the tensors that one candidate of a span changes take."""
    names = candidates.subspace.blocks[span.block].names
    changed = [candidates.base[name] for name in names]
    return max(1, sum(tensor.numel() * tensor.element_size() for tensor in changed))


def is_memory_error(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )


def halving(run: Callable[[Span], Tensor], tile: Span) -> Tensor:
    """The losses of a tile; on a memory error, those of its halves."""
    try:
        return run(tile)
    except (MemoryError, RuntimeError) as error:
        length = tile.end - tile.start
        if length == 1 or not is_memory_error(error):
            raise
        halves = tile.tiles(-(-length // 2))
    return torch.cat([halving(run, half) for half in halves])
