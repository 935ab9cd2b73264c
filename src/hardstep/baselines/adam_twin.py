"""Adam (Kingma and Ba 2015) by backpropagation through a smooth twin of the model.

    g = ∇θ L(twin with the model's θ)
    m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  θ ← θ − η m̂ / (√v̂ + ε)

The model with its hard parts has no useful gradient; its twin has the same parameters and soft
parts in place of the hard ones (surrogate gradients: Neftci et al. 2019). What is trained and
what is deployed are then different functions, and how soft the twin is, the slope of
`SmoothLIF` for instance, is the twin's setting and has to be tuned. A twin that is hard forward and
soft backward (`hardstep.nn.with_surrogates`) is both: what is trained is what is deployed.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep._checks import check_positive
from hardstep.baselines.base import Baseline, Outcome, check_rate, rate_at
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import LossFunction, Problem, isolate
from hardstep.evaluation.sandbox import reseed
from hardstep.schedules import Schedule


class AdamTwin(Baseline):
    """The gradient-based reference. `fit` validates and keeps the model, not the twin.

    A step counts as one evaluation: one forward and one backward pass of the twin. Its loss is
    the twin's. A step whose loss or gradient is not finite changes nothing.

    Args:
        model: A module, whose trainable parameters are trained.
        twin: A module with parameters of the same names and shapes. It is run with the model's
            values; its own are neither read nor changed.
        learning_rate: η, a number or a schedule.
        betas: β₁ and β₂.
        epsilon: ε.
        seed: Fixes every random draw of the forward passes.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("twin", "learning_rate", "betas", "epsilon")

    def __init__(
        self,
        model: nn.Module,
        twin: nn.Module,
        *,
        learning_rate: Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        seed: int = 0,
    ) -> None:
        check_rate(self._name, learning_rate)
        check_positive(f"{self._name}: epsilon", epsilon)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ConfigError(f"{self._name}: betas must be two numbers in [0, 1), got {betas}")
        for name, module in (("model", model), ("twin", twin)):
            if not isinstance(module, nn.Module):
                raise ConfigError(
                    f"{self._name}: {name} must be a module, got a {type(module).__name__}"
                )
        super().__init__(model, seed)
        self.twin = twin
        self.learning_rate, self.betas, self.epsilon = learning_rate, betas, epsilon
        self._shared = dict(model.named_parameters())  # frozen ones, too
        self._check_twin()
        self._adam = torch.optim.Adam(self.tensors.values(), betas=betas, eps=epsilon, fused=True)

    def _check_twin(self) -> None:
        ours = {name: tuple(tensor.shape) for name, tensor in self._shared.items()}
        theirs = {name: tuple(tensor.shape) for name, tensor in self.twin.named_parameters()}
        odd = {n for n in ours.keys() | theirs if ours.get(n) != theirs.get(n)}
        if odd:
            name = min(odd)
            raise ConfigError(
                f"{self._name}: the twin must have the model's parameters, but {name!r} has shape "
                f"{ours.get(name)} in the model and {theirs.get(name)} in the twin"
            )

    @property
    def evaluations_per_step(self) -> int:
        """A forward and a backward pass."""
        return 1

    def step(self, inputs: Any, target: Any, loss_fn: LossFunction) -> float:
        """Take one step on a batch and return the twin's loss."""
        return self._take(partial(self._advance, Problem(self.twin, inputs, target, loss_fn)))

    def _advance(self, problem: Problem) -> Outcome:
        loss, gradients = self._gradients(problem)
        known = [loss, *(g for g in gradients if g is not None)]
        if not all(map(_is_finite, known)):
            return Outcome(float(loss), {}, evaluations=1, nonfinite=1)
        before = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        for tensor, gradient in zip(self.tensors.values(), gradients, strict=True):
            tensor.grad = gradient
        for group in self._adam.param_groups:
            group["lr"] = rate_at(self._name, self.learning_rate, self.steps)
        self._adam.step()
        self._adam.zero_grad()  # the model is left without gradients, as other baselines leave it
        changes = {name: tensor - before[name] for name, tensor in self.tensors.items()}
        return Outcome(float(loss), changes, evaluations=1)

    def _gradients(self, problem: Problem) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """The twin's loss and its gradient; nothing for tensors that do not enter it."""
        with torch.enable_grad(), isolate(self.twin):
            reseed(seeds.derive(self.seed, "forward", self.steps))
            loss = problem.loss(self._shared, problem.buffers())
            if not loss.requires_grad:
                raise ObjectiveError(
                    f"{self._name}: the twin's loss has no gradient; give a loss_fn and a twin "
                    "made of differentiable operations"
                )
            tensors = list(self.tensors.values())
            return loss.detach(), torch.autograd.grad(loss, tensors, allow_unused=True)

    def _memory(self) -> dict[str, Any]:
        return {"adam": deepcopy(self._adam.state_dict())}

    def _recall(self, memory: Mapping[str, Any]) -> None:
        self._adam.load_state_dict(deepcopy(memory["adam"]))


def _is_finite(values: Tensor) -> bool:
    """Whether all are; by their extremes, which take a fraction of the time of `isfinite`."""
    return all(math.isfinite(extreme) for extreme in values.aminmax())
