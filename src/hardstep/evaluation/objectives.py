"""Objectives and evaluators: the one place where forward passes happen.

An `Objective` turns candidates into losses and may do so however it likes (a closure, a
vectorised function, a discrete problem with its own bookkeeping). For models there is
`ModelObjective`, which hands the work to an `Evaluator`; evaluators return the same losses
and differ in how much they recompute.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hardstep.errors import ObjectiveError
from hardstep.evaluation.candidates import Candidates
from hardstep.evaluation.slots import Slots

LossFunction = Callable[..., Tensor]


class Objective(Protocol):
    """Anything that can say what candidates cost."""

    def losses(self, candidates: Candidates) -> Tensor:
        """One loss per candidate, (N,)."""
        ...


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
        with self._slots.holding({**tensors, **buffers}):
            loss = self.loss_fn(call_model(self.model, self.inputs), *target)
        if isinstance(loss, Real):  # a loss function that leaves torch
            return torch.tensor(float(loss), dtype=torch.float64)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            seen = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ObjectiveError(
                f"loss_fn must return one number per parameter set, got {seen}; "
                "reduce over the batch, for instance with .mean()"
            )
        return loss.reshape(())

    def buffers(self) -> dict[str, Tensor]:
        """Copies of the model's buffers, so that forward passes cannot change them."""
        return {name: buffer.detach().clone() for name, buffer in self._slots.buffers().items()}

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


class Evaluator(Protocol):
    """A way to get the losses of a model's candidates."""

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,)."""
        ...


@dataclass(frozen=True, eq=False)
class ModelObjective:
    """A problem together with the evaluator that solves it."""

    problem: Problem
    evaluator: Evaluator

    def losses(self, candidates: Candidates) -> Tensor:
        """The evaluator's losses, without gradients."""
        with torch.no_grad():
            return self.evaluator.losses(candidates, self.problem)
