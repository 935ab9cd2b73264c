"""Watching what torch does: operation by operation, and the memory that it takes.

Also: what evaluators remember of the models they have seen.
"""

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from hardstep._torch import (
    FUSED_ATTENTION,
    FUSED_ENCODER_LAYER,
    TorchDispatchMode,
    storage_key,
    tree_leaves,
    unseen,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


class Findings(weakref.WeakKeyDictionary[Key, Value]):
    """What was found out about objects, for as long as they live.

    A copy, in memory or by pickle, is empty: copied objects are others, kernels do not travel, and
    everything can be found out again.
    """

    def __reduce__(self) -> tuple[type["Findings[Key, Value]"], tuple[()]]:
        return type(self), ()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Findings[Key, Value]":
        return type(self)()


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not load torch's compiler, which takes most of a second."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks; saying yes wraps every operation in a guard that imports the compiler."""
        return False


class LiveBytes(DispatchMode):
    """Measures the memory of tensors that are made inside: `now`, and at most, `peak`.

    Exact for what the operations return, on any device; what a kernel takes for itself while it
    runs is not seen. A storage counts once, however many views there are of it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}  # storages made inside and still alive
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage_key(storage) for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            key = storage_key(storage)
            if key not in self._sizes:
                if key in given:  # made outside
                    continue
                self._sizes[key] = 0
                self._watches[key] = weakref.ref(storage, partial(self._free, key))
            self.now += storage.nbytes() - self._sizes[key]
            self._sizes[key] = storage.nbytes()
        self.peak = max(self.peak, self.now)
        return result

    def _free(self, key: int, _: object) -> None:
        self.now -= self._sizes.pop(key)
        del self._watches[key]


class WriteError(Exception):
    """A tensor was about to be written to that should not be."""


class NoWrites(DispatchMode):
    """Refuses operations that write to some tensors, through whatever view or name."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = list(tensors)  # so that no other storage takes the place of one
        self._keys = {storage_key(storage) for storage in _storages(self._kept)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = _storages(find_written(func, args, kwargs or {}))
        if any(storage_key(storage) in self._keys for storage in written):
            raise WriteError(str(func))
        return func(*args, **(kwargs or {}))


def find_written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Tensor arguments that an operation writes to."""
    if not func._schema.is_mutable:
        return []
    named = zip(func._schema.arguments, args, strict=False)
    pairs = [*named, *((a, kwargs[a.name]) for a in func._schema.arguments if a.name in kwargs)]
    return [
        value
        for argument, value in pairs
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and isinstance(value, Tensor)
    ]


def _count_recurrent(inputs: Tensor, *weights: Tensor, **_: Any) -> int:
    """Of a layer (time, examples, inputs): every time step of every example meets two matrices."""
    matrices = weights[:2]
    return 2 * inputs.shape[0] * inputs.shape[1] * sum(weight.numel() for weight in matrices)


def _count_encoder(inputs: Tensor, width: int, _: int, *given: Any, **__: Any) -> int:
    """Of a layer (examples, tokens, width): its matrices, scores, and what these mix."""
    return _count_tokens(inputs, width, given[:15])


def _count_attention(
    query: Tensor, _: Tensor, __: Tensor, width: int, ___: int, *given: Any, **____: Any
) -> int:
    """The same of attention alone."""
    return _count_tokens(query, width, given[:4])


def _count_tokens(inputs: Tensor, width: int, weights: Iterable[Any]) -> int:
    matrices = [one.numel() for one in weights if isinstance(one, Tensor) and one.dim() == 2]
    rows, tokens = inputs.shape[:-1].numel(), inputs.shape[-2]
    return 2 * rows * (sum(matrices) + 2 * tokens * width)


FORMULAS: dict[Any, Callable[..., int]] = {  # that torch's own table lacks
    torch.ops.aten.mkldnn_rnn_layer: _count_recurrent,
    FUSED_ENCODER_LAYER: _count_encoder,
    FUSED_ATTENTION: _count_attention,
}


def count_operations(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Those behind a result: of products two per multiply-add, of others one per number."""
    packet = func.overloadpacket
    formula = flop_registry.get(packet) or FORMULAS.get(packet)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result))
    made = result if isinstance(result, tuple | list) else (result,)
    return max((out.numel() for out in made if isinstance(out, Tensor)), default=0)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    with unseen():
        return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def is_memory_error(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )
