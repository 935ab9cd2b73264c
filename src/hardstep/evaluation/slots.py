"""Where a model keeps its tensors, looked up once and then written many times.

`torch.func.functional_call` looks again on every call, which on a small network takes longer
than the forward pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


class Slots:
    """The places of a model's parameters and buffers; a tied one has several."""

    def __init__(self, model: nn.Module) -> None:
        self._owners: dict[str, list[tuple[dict[str, Tensor | None], str]]] = {}
        self._buffers: list[str] = []
        seen: dict[int, str] = {}  # the first name of a tensor, under which `model` lists it
        for path, module in model.named_modules():
            for kind, owner in enumerate((module._parameters, module._buffers)):
                for key, tensor in owner.items():
                    if tensor is None:
                        continue
                    own = f"{path}.{key}" if path else key
                    name = seen.setdefault(id(tensor), own)
                    if name == own and kind == 1:
                        self._buffers.append(name)
                    self._owners.setdefault(name, []).append((owner, key))

    def buffers(self) -> dict[str, Tensor]:
        """The buffers of now, by the names `named_buffers` gives them."""
        places = {name: self._owners[name][0] for name in self._buffers}
        current = {name: owner[key] for name, (owner, key) in places.items()}
        return {name: buffer for name, buffer in current.items() if buffer is not None}

    @contextmanager
    def holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
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
