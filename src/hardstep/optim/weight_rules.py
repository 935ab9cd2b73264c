"""Rules of the weights themselves: they outlive the directions that are searched at the moment."""

from dataclasses import dataclass
from typing import ClassVar

from hardstep.optim.rules import Rule, RuleState, Tensors, check_fraction, fraction_at
from hardstep.schedules import Schedule


@dataclass(frozen=True, slots=True)
class WeightMomentum(Rule):
    """v ← βv + Π·move; the weights move by v. β may be scheduled.

    With fixed directions this is `Momentum`. With directions redrawn every few steps `Momentum`
    would forget at each redraw, while this one adds up what successive small subspaces found, so
    that a step follows an average over many more directions than it probes.
    """

    beta: Schedule = 0.9

    of_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fraction("WeightMomentum: beta", self.beta)

    def shape_weights(
        self, changes: Tensors, state: RuleState, weights: Tensors, step: int
    ) -> tuple[Tensors, RuleState]:
        """The new velocity, which is the change."""
        del weights
        beta = fraction_at("WeightMomentum: beta", self.beta, step)
        velocity = {
            name: change if _velocity(name) not in state else beta * state[_velocity(name)] + change
            for name, change in changes.items()
        }
        return velocity, {_velocity(name): value for name, value in velocity.items()}


def _velocity(name: str) -> str:
    return f"velocity {name}"


@dataclass(frozen=True, slots=True)
class FullDecay(Rule):
    """W ← (1 − rate)·W + change, for every matrix: decoupled weight decay, of whole weights.

    `WeightDecay` pulls on the directions that are searched at the moment, which is a larger part
    of a narrow layer than of a wide one. This one pulls on all weights alike. With directions
    redrawn at every step it also wears off the random walk along those the loss hardly feels,
    which is what a network trained that way overfits with. Biases and other vectors are left
    alone. Put it after a momentum, which would add it up. Its rate should shrink with the step
    radius, or decay wins in the end.
    """

    rate: Schedule

    def __post_init__(self) -> None:
        check_fraction("FullDecay: rate", self.rate)

    def shape_weights(
        self, changes: Tensors, state: RuleState, weights: Tensors, step: int
    ) -> tuple[Tensors, RuleState]:
        """The changes, pulled toward zero weights."""
        rate = fraction_at("FullDecay: rate", self.rate, step)
        pulled = {
            name: change - rate * weights[name].detach() if change.dim() > 1 else change
            for name, change in changes.items()
        }
        return pulled, state
