"""Objectives and evaluators: the one place where forward passes happen.

An `Objective` turns candidates into losses and may do so however it likes (a closure, a
vectorized function, a discrete problem with its own bookkeeping). For models there is
`ModelObjective`, which hands the work to an `Evaluator`; evaluators return the same losses
and differ in how much they recompute. `make_objective` finds the objective that the arguments
of `step` describe.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hardstep._checks import check_method, check_real, list_arguments, show
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.memory import NoWrites, WriteError
from hardstep.evaluation.sandbox import Slots, isolate, reseed
from hardstep.evaluation.sharing import ByParticles, ByTiles, Opened, Questions, ask_once

LossFunction = Callable[..., Tensor]
CLOSURE_TILE = 32  # candidates whose changed tensors are built together, at most
FUNCTION_TILE = 512  # candidates per call of a vectorized function, at most
# Whether a model's forward pass writes to its parameters, by mode (training or not).
_WRITES: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()


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


def check_loss_fn(loss_fn: object) -> None:
    """Refuse what cannot be called with an output and a target."""
    if isinstance(loss_fn, type):
        name = loss_fn.__name__
        raise ConfigError(f"loss_fn must be a function, got the class {name}; write {name}()")
    if loss_fn is not None and not callable(loss_fn):
        raise ConfigError(
            "loss_fn must be a function of (output, target) such as "
            f"torch.nn.functional.cross_entropy, got {show(loss_fn)}"
        )


def _check_call(loss_fn: LossFunction, target: Any) -> None:
    """Refuse a loss function that does not take what it will be given."""
    given = ("output",) if target is None else ("output", "target")
    names = list_arguments(loss_fn, len(given))
    if names is not None:
        raise ConfigError(
            f"step: loss_fn is called as loss_fn({', '.join(given)}), since "
            f"{'no' if target is None else 'a'} target was given, got a function of "
            f"({', '.join(names)})"
        )


def _check_closure(closure: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with nothing."""
    names = list_arguments(closure, 0)
    if names is not None:
        raise ConfigError(
            f"step: a closure takes no argument, got a function of ({', '.join(names)}); give a "
            "function of stacked tensors as batched=, and a loss function third: "
            "step(inputs, target, loss_fn)"
        )


def _check_batched(function: Any) -> None:
    """Refuse what cannot be called with a dict of stacked tensors."""
    if not callable(function):
        raise ConfigError(
            "step: batched must be a function of stacked tensors {name: (N, *shape)}, got "
            f"{show(function)}"
        )
    names = list_arguments(function, 1)
    if names is not None:
        raise ConfigError(
            "step: batched is called with stacked tensors {name: (N, *shape)}, got a function of "
            f"({', '.join(names)}); give a closure, which takes nothing, as step(closure)"
        )


def make_objective(
    model: nn.Module | None,
    evaluator: Evaluator,
    inputs: Any,
    target: Any,
    loss_fn: LossFunction | None,
    batched: Callable[[dict[str, Tensor]], Any] | None,
    objective: Objective | None,
) -> Objective:
    """The objective that the arguments of `PolyStep.step` describe.

    An evaluator that has workers (it has a method `spread`) evaluates closures, functions and
    objectives, too.

    Raises:
        ConfigError: They describe none, or more than one.
    """
    found = _find_objective(model, evaluator, inputs, target, loss_fn, batched, objective)
    spread = None if isinstance(found, ModelObjective) else getattr(evaluator, "spread", None)
    return found if spread is None else spread(found)


def _find_objective(
    model: nn.Module | None,
    evaluator: Evaluator,
    inputs: Any,
    target: Any,
    loss_fn: LossFunction | None,
    batched: Callable[[dict[str, Tensor]], Any] | None,
    objective: Objective | None,
) -> Objective:
    if loss_fn is not None and not callable(loss_fn) and (callable(inputs) or callable(target)):
        seen = ", ".join(show(part) for part in (inputs, target, loss_fn))
        raise ConfigError(f"step takes (inputs, target, loss_fn) in this order, got ({seen})")
    check_loss_fn(loss_fn)
    batch = any(part is not None for part in (inputs, target, loss_fn))
    given = [batch, batched is not None, objective is not None]
    if sum(given) != 1:
        raise ConfigError(
            "step takes exactly one of (inputs, target, loss_fn), a closure, batched= and "
            f"objective=, got {sum(given)} of them"
        )
    if objective is not None:
        check_method("objective", objective, "losses", "MaxSat(formula), with losses()")
        return objective
    if batched is not None:
        _check_batched(batched)
        return FunctionObjective(batched)
    if callable(inputs) and target is None and loss_fn is None:
        _check_closure(inputs)
        return ClosureObjective(inputs, model)
    if model is None or inputs is None or loss_fn is None:
        raise ConfigError(
            "step(inputs, target, loss_fn) needs a model, inputs and a loss function; for "
            "plain tensors use a closure, batched= or objective="
        )
    _check_call(loss_fn, target)
    return ModelObjective(Problem(model, inputs, target, loss_fn), evaluator)
