"""Objectives turn candidates into losses: by a model, a closure or a function of stacked tensors.

A user's own may do so however it likes. That of a model hands the work to an `Evaluator`;
evaluators return the same losses and differ in how much they recompute.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hardstep._checks import check_real
from hardstep.errors import ObjectiveError
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate, reseed
from hardstep.evaluation.sharing import ByParticles, ByTiles, Opened, Questions, ask_once

CLOSURE_TILE = 32  # candidates whose changed tensors are built together, at most
FUNCTION_TILE = 512  # candidates per call of a vectorized function, at most


class Objective(Protocol):
    """Anything that can say what candidates cost."""

    def losses(self, candidates: Candidates) -> Tensor:
        """One loss per candidate, (N,)."""
        ...


class Evaluator(Protocol):
    """A way to get the losses of a model's candidates."""

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,)."""
        ...


def own_evaluator(model: object) -> Evaluator | None:
    """The evaluator that a model brings along, as an agent does that plays a simulator."""
    own = getattr(model, "evaluator", None) if isinstance(model, nn.Module) else None
    return own if callable(getattr(own, "losses", None)) else None


@dataclass(frozen=True, eq=False)
class ModelObjective:
    """A problem together with the evaluator that solves it."""

    problem: Problem
    evaluator: Evaluator

    def losses(self, candidates: Candidates) -> Tensor:
        """The evaluator's losses, without gradients."""
        with torch.no_grad():
            return self.evaluator.losses(candidates, self.problem)

    def announce(self, candidates: Candidates) -> None:
        """Tell workers of a step whose candidates are not known yet; `candidates` has none."""
        announce = getattr(self.evaluator, "announce", None)
        if announce is not None:
            announce(candidates, self.problem)

    def prepare(self, candidates: Candidates) -> None:
        """Do what can be done before candidates are known; `candidates` has none."""
        prepare = getattr(self.evaluator, "prepare", None)
        if prepare is not None:
            prepare(candidates, self.problem)

    def open(self, candidates: Candidates) -> Opened:
        """What answers for any range of them; whole particles, if the evaluator has no tiles."""
        open_step = getattr(self.evaluator, "open", None)
        with torch.no_grad():
            opened: Opened = (
                ByParticles(self).open(candidates)
                if open_step is None
                else open_step(candidates, self.problem)
            )
        return opened

    def ask(self, candidates: Candidates) -> Questions:
        """The evaluator's questions, or the only one."""
        ask = getattr(self.evaluator, "ask", None)
        questions: Questions = ask_once() if ask is None else ask(candidates, self.problem)
        return questions


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
        return self._call(candidates, list(candidates.spans()))

    def open(self, candidates: Candidates) -> Opened:
        """What answers for any range of them."""
        size = candidates.share_size(CLOSURE_TILE)
        return _open_tiles(candidates, size, partial(self._call, candidates))

    def ask(self, candidates: Candidates) -> Questions:
        """One question."""
        del candidates
        return ask_once()

    def _call(self, candidates: Candidates, spans: Sequence[Span]) -> Tensor:
        tensors = {name: tensor.detach() for name, tensor in candidates.base.items()}
        originals = {name: tensor.clone() for name, tensor in tensors.items()}
        shell = self.model if self.model is not None else nn.Module()
        buffers = dict(shell.named_buffers())
        kept = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        losses: list[float] = []
        try:
            with isolate(shell) as restore, torch.no_grad():
                for tile in candidates.tiles(candidates.share_size(CLOSURE_TILE), spans):
                    changed = candidates.changed(tile)
                    for i in range(tile.end - tile.start):
                        # All of them: the closure may write to tensors, too.
                        _write(originals | {n: stack[i] for n, stack in changed.items()}, tensors)
                        reseed(candidates.seed)
                        losses.append(as_number("closure", self.closure()))
                        restore()
                        _write(kept, buffers)
                    _write(originals, tensors)  # the next tile is built from them
        finally:
            _write(originals, tensors)
            _write(kept, buffers)
        return torch.tensor(losses, dtype=torch.float64)


def _open_tiles(candidates: Candidates, most: int, run: Callable[[list[Span]], Tensor]) -> ByTiles:
    """Tiles as a loop over all candidates would have them."""
    spans = list(candidates.spans())
    return ByTiles(spans, lambda span: list(candidates.tiles(most, [span])), run)


def _write(values: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Set tensors to values, in place."""
    for name, value in values.items():
        tensors[name].detach().copy_(value)


def as_number(name: str, value: Any) -> float:
    """A Python float from a float, a 0-d tensor or array."""
    check_real(f"{name} must return", value)
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
        return self._call(candidates, list(candidates.spans()))

    def open(self, candidates: Candidates) -> Opened:
        """What answers for any range of them."""
        return _open_tiles(candidates, FUNCTION_TILE, partial(self._call, candidates))

    def ask(self, candidates: Candidates) -> Questions:
        """One question."""
        del candidates
        return ask_once()

    def _call(self, candidates: Candidates, spans: Sequence[Span]) -> Tensor:
        pieces = []
        for tile in candidates.tiles(FUNCTION_TILE, spans):
            with torch.no_grad():
                result = self.function(candidates.stacked(tile))
            pieces.append(as_losses(result, tile.end - tile.start))
        return torch.cat(pieces)


def as_losses(value: Any, num: int) -> Tensor:
    """`num` losses in float64 from a tensor, an array or a list."""
    check_real("batched function must return", value)
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
