"""Objectives that are not a model and a batch: a closure, or a vectorised function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hardstep.errors import ObjectiveError
from hardstep.evaluation.candidates import Candidates
from hardstep.evaluation.sandbox import isolated, reseed

CLOSURE_TILE = 32  # candidates whose changed tensors are built together, at most
FUNCTION_TILE = 4096  # candidates per call of a vectorised function, at most


@dataclass(frozen=True, eq=False)
class ClosureObjective:
    """A function of nothing that uses the model, or whatever the tensors drive.

    Each candidate's values are written into the tensors, the closure is called, and at the
    end the original values are put back, also when the closure fails.
    """

    closure: Callable[[], Any]
    model: nn.Module | None = None

    def losses(self, candidates: Candidates) -> Tensor:
        """One call per candidate."""
        tensors = {name: tensor.detach() for name, tensor in candidates.base.items()}
        originals = {name: tensor.clone() for name, tensor in tensors.items()}
        shell = self.model if self.model is not None else nn.Module()
        buffers = dict(shell.named_buffers())
        kept = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        losses: list[float] = []
        try:
            with isolated(shell) as restore, torch.no_grad():
                for tile in candidates.tiles(CLOSURE_TILE):
                    changed = candidates.changed(tile)
                    for i in range(tile.end - tile.start):
                        _write({name: stack[i] for name, stack in changed.items()}, tensors)
                        reseed(candidates.seed)
                        losses.append(as_number("closure", self.closure()))
                        restore()
                        _write(kept, buffers)
                    _write({name: originals[name] for name in changed}, tensors)
        finally:
            _write(originals, tensors)
            _write(kept, buffers)
        return torch.tensor(losses, dtype=torch.float64)


def _write(values: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Set tensors to values, in place."""
    for name, value in values.items():
        tensors[name].detach().copy_(value)


def as_number(name: str, value: Any) -> float:
    """A Python float from a float, a 0-d tensor or array."""
    try:
        size = value.numel() if isinstance(value, Tensor) else getattr(value, "size", 1)
        if size == 1 and not isinstance(value, str | bytes):
            return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError):
        pass
    seen = f"shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)[:80]
    raise ObjectiveError(f"{name} must return one number, got {seen}")


@dataclass(frozen=True, eq=False)
class FunctionObjective:
    """A function of stacked tensors {name: (N, *shape)} that returns (N,) losses."""

    function: Callable[[dict[str, Tensor]], Any]

    def losses(self, candidates: Candidates) -> Tensor:
        """One call per tile of candidates."""
        pieces = []
        for tile in candidates.tiles(FUNCTION_TILE):
            with torch.no_grad():
                result = self.function(candidates.stacked(tile))
            pieces.append(as_losses(result, tile.end - tile.start))
        return torch.cat(pieces)


def as_losses(value: Any, num: int) -> Tensor:
    """`num` losses in float64 from a tensor, an array or a list."""
    try:
        losses = torch.as_tensor(value)
        seen = str(tuple(losses.shape))
    except (TypeError, ValueError, RuntimeError):
        losses, seen = torch.empty(0, 0), repr(value)[:80]
    if losses.shape != (num,):
        raise ObjectiveError(
            f"batched function must return one loss per candidate, shape ({num},), got {seen}"
        )
    return losses.double().cpu()
