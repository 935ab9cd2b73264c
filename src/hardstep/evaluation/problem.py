"""A plain forward pass: the loss of a model on a batch, with tensors in place of its own.

A pass leaves no trace: buffers are copies, and so are parameters where the model writes to them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hardstep._checks import check_real
from hardstep.errors import ObjectiveError
from hardstep.evaluation.memory import NoWrites, WriteError
from hardstep.evaluation.sandbox import Slots, isolate, reseed

LossFunction = Callable[..., Tensor]
# Whether a model's forward pass writes to its parameters, by mode (training or not).
_WRITES: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, a batch and a loss: what one forward pass computes."""

    model: nn.Module
    inputs: Any  # a tensor, a tuple of positional or a dict of keyword arguments
    target: Any
    loss_fn: LossFunction

    def loss(self, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Tensor:
        """The loss with these tensors in place of the model's own, in the loss function too."""
        target = () if self.target is None else (self.target,)
        with self._slots.hold({**tensors, **buffers}):
            loss = self.loss_fn(call_model(self.model, self.inputs), *target)
        check_real("loss_fn must return", loss)
        if isinstance(loss, Real):  # a loss function that leaves torch
            return torch.tensor(float(loss), dtype=torch.float64)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            seen = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ObjectiveError(
                f"loss_fn must return one number per parameter set, got {seen}; "
                "reduce over the batch, for instance with .mean()"
            )
        return loss.reshape(()) if loss.dim() else loss

    def buffers(self) -> dict[str, Tensor]:
        """Copies of the model's buffers, so that forward passes cannot change them."""
        return {name: buffer.detach().clone() for name, buffer in self._slots.buffers().items()}

    def parameters(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The base of a forward pass; copies of all parameters, if passes write to them."""
        plain = {name: tensor.detach() for name, tensor in base.items()}
        if not _WRITES.get(self.model, {}).get(self.model.training):
            return plain
        return {name: t.detach().clone() for name, t in (self._slots.parameters() | plain).items()}

    def run(self, base: Mapping[str, Tensor], changed: Mapping[str, Tensor], seed: int) -> Tensor:
        """The loss of one plain forward pass, which leaves no trace in parameters and buffers.

        The first pass of a model is watched, and stopped before it writes to a parameter.
        """
        known = _WRITES.setdefault(self.model, {})
        mode = self.model.training
        if mode not in known:
            own = [*self._slots.parameters().values(), *base.values(), *changed.values()]
            try:
                with isolate(self.model), NoWrites(own):
                    loss = self._run(base, changed, seed)
            except WriteError:
                known[mode] = True
            else:
                known[mode] = False
                return loss
        return self._run(base, changed, seed)

    def _run(self, base: Mapping[str, Tensor], changed: Mapping[str, Tensor], seed: int) -> Tensor:
        reseed(seed)
        return self.loss(self.parameters(base) | dict(changed), self.buffers())

    @cached_property
    def _slots(self) -> Slots:
        return Slots(self.model)


def call_model(model: nn.Module, inputs: Any) -> Any:
    """The model's output for inputs in any of the accepted forms."""
    args, kwargs = _arguments(inputs)
    return model(*args, **kwargs)


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    # A named tuple, such as torch's PackedSequence, is one argument.
    several = isinstance(inputs, tuple | list) and not hasattr(inputs, "_fields")
    return (tuple(inputs) if several else (inputs,)), {}
