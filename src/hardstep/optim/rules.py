"""Rules that shape a move after the plan has proposed it, chained in the order given.

A rule is a setting plus a state (a dict of tensors): `init` makes the state, `shape` turns
(move, state) into (move, state). A rule may do more: answer a step without a solve (`coast`),
answer rows without evaluations (`recall`, `remember`), make everything forget (`absorbs`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.optim.step import Proposal, propose
from hardstep.schedules import Schedule, value_at

RuleState = dict[str, Tensor]
Tensors = Mapping[str, Tensor]  # one for every searched tensor, by name


class Context(NamedTuple):
    """What a rule may look at."""

    step: int
    loss: float
    weights: Callable[[], Tensor]  # Πᵀθ as particles (P, d_p)


class Rule:
    """A rule that does nothing; the others override what they need."""

    reuses: ClassVar[bool] = False  # old losses or plans stand in for new ones: no jitter
    remembers: ClassVar[bool] = False  # coordinates, which a redraw makes it forget
    of_weights: ClassVar[bool] = False  # its state is of the weights and outlives coordinates

    def init(self, move: Tensor) -> RuleState:
        """The state before the first move, for moves shaped like `move` (P, d_p)."""
        del move
        return {}

    def shape(self, move: Tensor, state: RuleState, context: Context) -> tuple[Tensor, RuleState]:
        """The move to make instead, and the next state."""
        del context
        return move, state

    def shape_weights(
        self, changes: Tensors, state: RuleState, weights: Tensors, step: int
    ) -> tuple[Tensors, RuleState]:
        """What to add to the weights instead of the move's changes, and the next state."""
        del weights, step
        return changes, state

    def absorbs(self, step: int) -> bool:
        """Whether everything remembered is dropped after this step."""
        del step
        return False

    def coasting(self, state: RuleState, step: int) -> bool:
        """Whether the rule can answer this step for the price of one loss."""
        del state, step
        return False

    def coast(self, state: RuleState, step: int, loss: float) -> Tensor | None:
        """The move of such a step, given the loss at the parameters; nothing to solve instead."""
        del state, step, loss
        return None

    def recall(self, proposal: Proposal, state: RuleState) -> Proposal:
        """The proposal with the rows that the rule can answer taken out of `rows`."""
        del state
        return proposal

    def remember(self, proposal: Proposal, losses: Tensor, state: RuleState) -> RuleState:
        """The state after a solve whose losses (P, V, K) are known."""
        del proposal, losses
        return state


def check_fraction(name: str, value: Schedule) -> None:
    """Refuse what does not lie in [0, 1); a schedule is looked at step by step."""
    if not callable(value) and not 0 <= value < 1:
        raise ConfigError(f"{name} must be in [0, 1), got {value}")


def fraction_at(name: str, schedule: Schedule, step: int) -> float:
    """The value of a step, which must lie in [0, 1) too."""
    value = value_at(schedule, step)
    check_fraction(f"{name} at step {step}", value)
    return value


@dataclass(frozen=True, slots=True)
class Momentum(Rule):
    """v ← βv + move; the particle moves by v. β may be scheduled."""

    beta: Schedule = 0.9

    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fraction("Momentum: beta", self.beta)

    def init(self, move: Tensor) -> RuleState:
        """No velocity yet."""
        return {"velocity": torch.zeros_like(move)}

    def shape(self, move: Tensor, state: RuleState, context: Context) -> tuple[Tensor, RuleState]:
        """The new velocity, which is the move."""
        beta = fraction_at("Momentum: beta", self.beta, context.step)
        velocity = beta * state["velocity"] + move
        return velocity, {"velocity": velocity}


@dataclass(frozen=True, slots=True)
class WeightDecay(Rule):
    """move ← move − rate·Πᵀθ: shrinks the part of the weights that the search can reach."""

    rate: Schedule

    def __post_init__(self) -> None:
        check_fraction("WeightDecay: rate", self.rate)

    def shape(self, move: Tensor, state: RuleState, context: Context) -> tuple[Tensor, RuleState]:
        """The move, pulled toward zero weights."""
        rate = fraction_at("WeightDecay: rate", self.rate, context.step)
        return move - rate * context.weights().to(move), state


@dataclass(frozen=True, slots=True)
class PlanReuse(Rule):
    """Solve on every `every`-th step; between, coast along an average of past moves.

    E ← ema·E + (1 − ema)·move at a solve (E = move at the first); j steps after it the
    particles move by (1 − j/every)·E for the price of a single loss. If that loss has grown
    by more than `limit` times since the solve, a solve is forced. Fit for smooth or slowly
    changing losses; on a jumping one a stale plan answers a question nobody asked.
    """

    every: int = 3
    ema: float = 0.7
    limit: float = 1.5

    reuses: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"PlanReuse: every must be at least 1, got {self.every}")
        check_fraction("PlanReuse: ema", self.ema)
        if not self.limit > 1:
            raise ConfigError(f"PlanReuse: limit must be > 1, got {self.limit}")

    def init(self, move: Tensor) -> RuleState:
        """No plan yet."""
        return {"average": torch.zeros_like(move), "loss": torch.tensor(torch.nan)}

    def shape(self, move: Tensor, state: RuleState, context: Context) -> tuple[Tensor, RuleState]:
        """The move as it is; the average takes it in."""
        fresh = bool(state["loss"].isnan())
        average = move if fresh else self.ema * state["average"] + (1 - self.ema) * move
        loss = torch.tensor(context.loss, dtype=torch.float64)
        return move, {"average": average, "loss": loss}

    def coasting(self, state: RuleState, step: int) -> bool:
        """Whether this step has a plan to reuse."""
        return step % self.every != 0 and not bool(state["loss"].isnan())

    def coast(self, state: RuleState, step: int, loss: float) -> Tensor | None:
        """The move without a solve, or nothing if the loss grew too much."""
        before = float(state["loss"])
        if not loss - before <= (self.limit - 1) * abs(before):
            return None
        return (1 - (step % self.every) / self.every) * state["average"]


@dataclass(frozen=True, slots=True)
class Absorb(Rule):
    """Every `every` steps: coordinates restart from zero, directions and velocities too."""

    every: int = 20

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"Absorb: every must be at least 1, got {self.every}")

    def absorbs(self, step: int) -> bool:
        """After steps every − 1, 2·every − 1, …."""
        return (step + 1) % self.every == 0


@dataclass(frozen=True, slots=True)
class AdaptiveProbes(Rule):
    """Reuse the cost row of a particle whose mean loss has not changed.

    "Not changed" is a relative change of at most `tolerance` between its last two
    evaluations. A reused row keeps the directions it was measured along, and is measured
    again after at most `max_age` steps.
    """

    tolerance: float = 1e-4
    max_age: int = 3

    reuses: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise ConfigError(f"AdaptiveProbes: tolerance must be >= 0, got {self.tolerance}")
        if self.max_age < 1:
            raise ConfigError(f"AdaptiveProbes: max_age must be at least 1, got {self.max_age}")

    def init(self, move: Tensor) -> RuleState:
        """Nothing measured yet: every row is needed."""
        return {"mean": torch.full((len(move),), torch.nan, dtype=torch.float64)}

    def recall(self, proposal: Proposal, state: RuleState) -> Proposal:
        """The proposal with unchanged rows answered from memory."""
        if "losses" not in state or state["losses"].shape != proposal.remembered.shape:
            return proposal
        reuse = state["steady"] & (state["age"] < self.max_age)
        keep = reuse.to(proposal.directions.device)[:, None, None]
        directions = torch.where(keep, state["directions"], proposal.directions)
        still = torch.zeros(len(directions))
        fresh = propose(proposal.step, directions, proposal.reach, proposal.temperature, 0.0, still)
        remembered = torch.where(reuse[:, None, None], state["losses"], proposal.remembered)
        return fresh._replace(rows=(~reuse).nonzero().squeeze(1), remembered=remembered)

    def remember(self, proposal: Proposal, losses: Tensor, state: RuleState) -> RuleState:
        """The state after a step whose losses (P, V, K) are known."""
        mean = losses.double().mean(dim=(1, 2))
        change = (mean - state["mean"]).abs()
        evaluated = torch.zeros(len(mean), dtype=torch.bool)
        evaluated[proposal.rows] = True
        steady = change <= self.tolerance * state["mean"].abs()
        age = torch.where(evaluated, 0, state.get("age", torch.zeros(len(mean)).long()) + 1)
        return {
            "mean": mean,
            "steady": torch.where(evaluated, steady, state.get("steady", steady)),
            "age": age,
            "losses": losses.double(),
            "directions": proposal.directions,
        }
