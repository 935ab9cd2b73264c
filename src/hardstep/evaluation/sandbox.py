"""Forward passes that leave no trace: modes, buffers, attributes, the global generators."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy

import torch
from torch import Tensor, nn

# What torch itself keeps on every module. A forward pass writes to none of it but the buffers.
_BOOKKEEPING = frozenset(vars(nn.Module())) - {"_buffers"}
# Exactly these: a subclass may refuse to be changed, as read-only configurations do.
_CONTAINERS = frozenset({list, deque, dict, OrderedDict, defaultdict, set})


def _devices() -> list[int]:
    """The accelerators in use, whose generators are set and restored."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if used else []


def reseed(seed: int) -> None:
    """Give the next forward pass the random numbers of `seed` (dropout, noise)."""
    # torch.manual_seed would also leave its seed to devices that are initialised later.
    torch.default_generator.manual_seed(seed)
    if _devices():
        torch.cuda.manual_seed_all(seed)


class _Snapshot:
    """A module's attributes, with the contents of those that can be changed in place."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.attributes = dict(vars(module))
        own = [value for name, value in self.attributes.items() if name not in _BOOKKEEPING]
        self.containers = [(v, copy(v)) for v in own if type(v) in _CONTAINERS]
        self.tensors = [
            (v, v._version, v.detach().clone())
            for v in own
            if isinstance(v, Tensor) and not v.is_inference()
        ]

    def restore(self) -> None:
        """Put everything back, touching only the tensors that were written to."""
        vars(self.module).clear()
        vars(self.module).update(self.attributes)
        for live, kept in self.containers:
            live.clear()
            live.extend(kept) if isinstance(live, list | deque) else live.update(kept)
        for i, (tensor, version, value) in enumerate(self.tensors):
            if tensor._version != version:
                tensor.detach().copy_(value)
                self.tensors[i] = tensor, tensor._version, value


@contextmanager
def isolated(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Restore the attributes of every submodule (modes, hidden state) and the generators.

    Hidden state may be rebound or changed in place: a tensor, or a list, dict, set or deque. The
    function it gives restores the attributes in between, for the next of several passes.
    """
    kept = [_Snapshot(module) for module in model.modules()]

    def restore() -> None:
        for snapshot in kept:
            snapshot.restore()

    with torch.random.fork_rng(devices=_devices()):
        try:
            yield restore
        finally:
            restore()
