"""Forward passes that leave no trace: tensors, modes, buffers, attributes, generators, warnings."""

import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from itertools import chain
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from hardstep._torch import version_of, warn_of_missing_rules
from hardstep.errors import ConfigError

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
    # torch.manual_seed would also leave its seed to devices that are initialized later.
    torch.default_generator.manual_seed(seed)
    if _devices():
        torch.cuda.manual_seed_all(seed)


def _list_values(attribute: Any) -> Iterable[Any]:
    """What an attribute holds that can be a tensor: itself, or the values in a container."""
    if type(attribute) not in _CONTAINERS:
        return (attribute,)
    return attribute.values() if isinstance(attribute, dict) else attribute


class _Snapshot:
    """A module's attributes, with the contents of those that can be changed in place."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.attributes = dict(vars(module))
        own = {name: v for name, v in self.attributes.items() if name not in _BOOKKEEPING}
        self.containers = [(v, copy(v)) for v in own.values() if type(v) in _CONTAINERS]
        own.pop("_buffers", None)  # forward passes are given copies of them
        self.tensors = [
            (v, version_of(v), v.detach().clone())
            for v in chain.from_iterable(map(_list_values, own.values()))
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
            if version_of(tensor) != version:
                tensor.detach().copy_(value)
                self.tensors[i] = tensor, version_of(tensor), value


_OWNERS: dict[int, list[int]] = {}  # of a model that is in use: its thread, and how often
_OWNERS_LOCK = Lock()


@contextmanager
def claim(model: nn.Module | None) -> Iterator[None]:
    """Keep a model from other threads: while it is evaluated, it holds tensors of candidates.

    Raises:
        ConfigError: Another thread has it.
    """
    own = [get_ident(), 0]
    with _OWNERS_LOCK:
        owner = own if model is None else _OWNERS.setdefault(id(model), own)
        if owner[0] != own[0]:
            raise ConfigError(
                f"the model ({type(model).__name__}) is being evaluated by another thread, which "
                "puts other values in place of its parameters; give each thread a model of its "
                "own, for instance copy.deepcopy(model)"
            )
        owner[1] += 1
    try:
        yield
    finally:
        with _OWNERS_LOCK:
            owner[1] -= 1
            if not owner[1]:
                _OWNERS.pop(id(model), None)


@contextmanager
def keep(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Put back the values of tensors that are written to meanwhile."""
    kept = [(t.detach(), t.detach().clone()) for t in tensors if not is_lazy(t)]
    try:
        yield
    finally:
        for tensor, value in kept:
            if not torch.equal(tensor, value):
                tensor.copy_(value)


@contextmanager
def isolate(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Restore the attributes of every submodule (modes, hidden state) and the generators.

    Hidden state may be rebound or changed in place: a tensor, or a list, dict, set or deque. The
    function it gives restores the attributes in between, for the next of several passes.
    """

    def restore() -> None:
        for snapshot in kept:
            snapshot.restore()

    with claim(model), torch.random.fork_rng(devices=_devices()):
        kept = [_Snapshot(module) for module in model.modules()]
        try:
            yield restore
        finally:
            restore()


@contextmanager
def show_parts() -> Iterator[None]:
    """Let torch compute attention from operations that can be followed, not as a single one."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class Slots:
    """Where a model keeps its parameters and buffers; a tied one has several places.

    Looked up once and then written many times: `torch.func.functional_call` looks again on every
    call, which on a small network takes longer than the forward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        self._owners: dict[str, list[tuple[dict[str, Tensor | None], str]]] = {}
        self._names: tuple[list[str], list[str]] = [], []  # of parameters, of buffers
        seen: dict[int, str] = {}  # the first name of a tensor, under which `model` lists it
        for path, module in model.named_modules():
            for kind, owner in enumerate((module._parameters, module._buffers)):
                for key, tensor in owner.items():
                    if tensor is None:
                        continue
                    own = f"{path}.{key}" if path else key
                    name = seen.setdefault(id(tensor), own)
                    if name == own:
                        self._names[kind].append(name)
                    self._owners.setdefault(name, []).append((owner, key))

    def buffers(self) -> dict[str, Tensor]:
        """The buffers of now, by the names `named_buffers` gives them."""
        return self._find(self._names[1])

    def parameters(self) -> dict[str, Tensor]:
        """The parameters of now, by the names `named_parameters` gives them."""
        return self._find(self._names[0])

    def _find(self, names: Iterable[str]) -> dict[str, Tensor]:
        places = {name: self._owners[name][0] for name in names}
        current = {name: owner[key] for name, (owner, key) in places.items()}
        return {name: tensor for name, tensor in current.items() if tensor is not None}

    @contextmanager
    def hold(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the model hold these tensors in place of its own."""
        kept = [(owner, key, owner[key]) for name in tensors for owner, key in self._owners[name]]
        try:
            for name, tensor in tensors.items():
                for owner, key in self._owners[name]:
                    owner[key] = tensor
            yield
        finally:
            for owner, key, own in kept:
                owner[key] = own


class _Silence:
    """Keeps torch's remarks on its own batching rules from the user.

    Torch's switches belong to the process, not to a thread, so the first thread to enter sets
    them and the last one to leave puts them back.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._filters: AbstractContextManager[Any]

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                # Operations without a batching rule run in a loop: slower, equally right.
                warn_of_missing_rules(False)
                # The batched PReLU writes into a result of the wrong shape, harmlessly.
                resized = "An output with one or more elements was resized"
                warnings.filterwarnings("ignore", message=resized)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                warn_of_missing_rules(True)
                self._filters.__exit__(None, None, None)


_SILENCE = _Silence()


def run_vmap(
    function: Callable[..., Any], *args: Any, in_dims: Any = 0, randomness: str = "error"
) -> Any:
    """`torch.func.vmap` of a function, called without a word."""
    with _SILENCE:
        return vmap(function, in_dims=in_dims, randomness=randomness)(*args)
