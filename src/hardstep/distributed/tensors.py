"""Objects on their way to workers: tensors by number and digest, the rest by pickle.

A tensor that has not changed does not travel again, one that is the rows of a known one travels as
their numbers, and the searched ones follow a move. Objects that share
a tensor here share one there.
"""

import hashlib
import io
import itertools
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardstep._torch import version_of
from hardstep.errors import ConfigError
from hardstep.evaluation.origins import find_origin

try:
    from cloudpickle import Pickler as _Pickler  # functions that are in no module, too
except ImportError:
    from pickle import Pickler as _Pickler

SMALL = 4 << 20  # bytes; a larger tensor that is no parameter has changed if torch says so
DRIVERS_OWN = "kept_by_driver"  # attributes of a module that workers do not need


class Known(NamedTuple):
    """A tensor that workers may have."""

    tensor: Tensor
    number: int
    version: int
    digest: bytes


def digest(tensor: Tensor) -> bytes:
    """What tells the contents of a tensor from others."""
    plain = tensor.detach().cpu().contiguous()
    kind = f"{plain.dtype}{tuple(plain.shape)}".encode()
    known = hashlib.sha256(kind)  # of the safe ones the fastest, where processors help with it
    # As bytes, since numpy has no bfloat16.
    known.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return known.digest()[:16]


class TensorTable:
    """The tensors of a run, by number.

    Numbers are given out at once. What the tensors hold is looked at when the step is complete, so
    that it can be on its way before.
    """

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}  # by identity, which the reference keeps
        self._numbers = itertools.count()
        self._seen: set[int] = set()
        self._stale: set[int] = set()  # to be looked at

    def begin(self) -> None:
        """A new step: what is not seen in it is forgotten at its end."""
        self._seen, self._stale = set(), set()

    def end(self) -> dict[int, Known]:
        """The tensors of this step."""
        self._known = {key: one for key, one in self._known.items() if key in self._seen}
        for key in self._stale:
            known = self._known[key]
            self._known[key] = known._replace(
                version=version_of(known.tensor), digest=digest(known.tensor)
            )
        return {one.number: one for one in self._known.values()}

    def keep(self, numbers: set[int]) -> None:
        """Take tensors for seen, as they were."""
        self._seen |= {key for key, one in self._known.items() if one.number in numbers}

    def number(self, tensor: Tensor, changing: bool = False) -> int:
        """The number of a tensor; `changing` if its contents must be looked at, however large."""
        key = id(tensor)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known(tensor, next(self._numbers), -1, b"")
        if key not in self._seen and (
            changing
            or version_of(tensor) != known.version
            or tensor.numel() * tensor.element_size() <= SMALL
        ):
            self._stale.add(key)
        self._seen.add(key)
        return known.number


class _Packer(_Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, table: TensorTable) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.table = table
        self.reached: set[int] = set()

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return None
        origin = find_origin(obj)
        if origin is not None:
            source, rows = origin
            return "rows", self.table.number(source), rows.numpy().tobytes()
        number = self.table.number(obj)
        self.reached.add(number)
        return "tensor", number

    def reducer_override(self, obj: Any) -> Any:
        own = getattr(type(obj), DRIVERS_OWN, ()) if isinstance(obj, nn.Module) else ()
        if own:
            make, args, state, *rest = obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
            return make, args, {**state, **dict.fromkeys(own, 0)}, *rest
        other = getattr(super(), "reducer_override", None)
        return NotImplemented if other is None else other(obj)


def pack(what: str, thing: Any, table: TensorTable) -> tuple[bytes, set[int]]:
    """A thing without its tensors, and the numbers of these.

    Raises:
        ConfigError: It cannot be sent to another process.
    """
    file = io.BytesIO()
    packer = _Packer(file, table)
    try:
        packer.dump(thing)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{what} cannot be sent to workers ({type(error).__name__}: {error}); define its parts "
            "at the top of a module and keep open files, locks and generators out of it"
        ) from error
    return file.getvalue(), packer.reached


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Mapping[int, Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        if pid[0] == "rows":
            rows = torch.frombuffer(bytearray(pid[2]), dtype=torch.long)
            return self.tensors[pid[1]].index_select(0, rows)
        return self.tensors[pid[1]]


def unpack(blob: bytes, tensors: Mapping[int, Tensor]) -> Any:
    """The thing that was packed, with tensors from a worker's own table."""
    return _Unpacker(io.BytesIO(blob), tensors).load()


class Frozen(NamedTuple):
    """A tensor as bytes, in the order in which it lies in memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    contents: bytes


def freeze(tensor: Tensor) -> Frozen:
    """A tensor on its way; `torch.save` would take a millisecond for each."""
    # A copy has the order in memory of a dense tensor, and nothing of a larger one behind it.
    copy = tensor.detach().clone()
    flat = torch.empty(0, dtype=torch.uint8, device=copy.device).set_(copy.untyped_storage())
    contents = flat.cpu().numpy().tobytes()
    return Frozen(copy.dtype, tuple(copy.shape), copy.stride(), str(copy.device), contents)


def thaw(frozen: Frozen) -> Tensor:
    """The tensor that was frozen."""
    found = torch.empty_strided(frozen.shape, frozen.stride, dtype=frozen.dtype)
    if frozen.contents:
        contents = torch.frombuffer(bytearray(frozen.contents), dtype=torch.uint8)
        torch.empty(0, dtype=torch.uint8).set_(found.untyped_storage()).copy_(contents)
    return found.to(frozen.device)


def pack_values(known: Iterable[Known]) -> bytes:
    """Contents of tensors; a parameter arrives as one."""
    values = {}
    for one in known:
        kind = isinstance(one.tensor, nn.Parameter), one.tensor.requires_grad
        values[one.number] = *kind, freeze(one.tensor)
    return pickle.dumps(values)


def unpack_values(blob: bytes) -> dict[int, Tensor]:
    """What `pack_values` sent."""
    return {
        number: nn.Parameter(thaw(value), requires_grad) if is_parameter else thaw(value)
        for number, (is_parameter, requires_grad, value) in pickle.loads(blob).items()
    }
