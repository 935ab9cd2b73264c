"""Ways in which a forward pass hands values to code that does not record.

Also: recurrent layers, whose operators hide what they do, and are replaced by it.
"""

from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hardstep._torch import one_hot, undispatched
from hardstep.evaluation.trace.recurrence import CELLS, is_packed, unroll

# Ways out of torch that no operation records: what comes back cannot be followed.
_COPIES = {  # harmless for values that no searched tensor reaches, such as labels
    torch.Tensor.numpy,
    torch.Tensor.__array__,
    torch.Tensor.tolist,
}
_EXITS = _COPIES | {
    torch.Tensor.data_ptr,
    torch.Tensor.untyped_storage,
    torch.Tensor.__dlpack__,
    torch.Tensor.storage,
    torch.Tensor.data.__set__,  # type: ignore[attr-defined]
}
# These read tensors inside a list without an operation.
_MAKERS = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor}
_SPLITS = {torch.tensor_split, torch.Tensor.tensor_split}
_READERS = _MAKERS | _SPLITS


class Recorder(Protocol):
    """Who writes a forward pass down."""

    reads_numbers: bool
    in_layer: bool  # what runs is a time step of one of torch's recurrent layers

    def refuse(self, reason: str) -> NoReturn:
        """Give up."""

    def is_reached(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory may hold numbers that depend on a searched tensor."""


def _list_tensors(value: Any) -> Iterator[Tensor]:
    """Tensors in lists, however deep."""
    for item in value if isinstance(value, list | tuple) else ():
        if isinstance(item, Tensor):
            yield item
        else:
            yield from _list_tensors(item)


def _within(index: Tensor, num: int) -> bool:
    """Whether every index is one of `num`; looked at without being seen."""
    with undispatched():
        return num > 0 and (index.numel() == 0 or 0 <= int(index.min()) <= int(index.max()) < num)


class NoExits(TorchFunctionMode):
    """Refuses calls that hand values to code that does not record."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _EXITS and (func not in _COPIES or self.recorder.is_reached(args[0])):
            self.recorder.refuse(f"the forward pass leaves torch through {func.__name__}")
        self.recorder.reads_numbers |= func in _EXITS
        if func in _READERS:
            self._check_reader(func, (*args, *(kwargs or {}).values()))
        if func is one_hot and len(args) == 2 and _within(*args):
            # Torch's own reads the largest index to check it, which looks like a branch.
            classes = torch.arange(args[1], device=args[0].device)
            return (args[0].unsqueeze(-1) == classes).long()
        if func in CELLS:
            if is_packed(args):
                self.recorder.refuse(
                    "a recurrent layer reads a packed sequence; give it a padded one"
                )
            self.recorder.in_layer = True
            try:
                return unroll(CELLS[func], *args, **(kwargs or {}))
            finally:
                self.recorder.in_layer = False
        return func(*args, **(kwargs or {}))

    def _check_reader(self, func: Any, given: tuple[Any, ...]) -> None:
        listed = [tensor for value in given for tensor in _list_tensors(value)]
        if func in _MAKERS and any(map(self.recorder.is_reached, listed)):
            self.recorder.refuse(f"the forward pass reads the values of tensors by {func.__name__}")
        places = [value for value in given[1:] if isinstance(value, Tensor)]
        if func in _SPLITS and any(map(self.recorder.is_reached, places)):
            self.recorder.refuse("the forward pass splits where the values of a tensor say")
