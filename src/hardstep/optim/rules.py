"""Rules that shape a move after the plan has proposed it, chained in the order given.

A rule is a setting plus a state (a dict of tensors). `Rule` is the base of those that change the
move, `Reuse` of those that answer from memory what would otherwise be evaluated:

    class Clip(Rule):
        def shape(self, move, state, context):
            return move.clamp(-0.1, 0.1), state

    PolyStep(model, rules=(Clip(), Momentum(0.9)))
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from hardstep._checks import check_count, check_not_negative
from hardstep.errors import ConfigError
from hardstep.optim.step import Proposal, Reach, propose
from hardstep.schedules import Schedule, value_at

RuleState = dict[str, Tensor]
Tensors = Mapping[str, Tensor]  # one for every searched tensor, by name


class Context(NamedTuple):
    """What a rule may look at."""

    step: int  # that schedules are at
    loss: float
    dead_share: float  # of the cost rows: all probes of the particle returned the same loss
    weights: Callable[[], Tensor]  # Πᵀθ as particles (P, d_p)


class Rule:
    """A rule that does nothing; the others override what they need.

    A state is forgotten when coordinates are redrawn or absorbed, unless it is `of_weights`.
    """

    of_weights: ClassVar[bool] = False  # the state is of the weights and outlives a redraw

    def init(self, move: Tensor) -> RuleState:
        """The state before the first move, for moves shaped like `move` (P, d_p)."""
        del move
        return {}

    @property
    def patience(self) -> int:
        """Steps without any difference between probes that it may need to end them by itself."""
        return 0

    def extend(self, reach: Reach, state: RuleState) -> Reach:
        """How far to look and to go instead, before probes are placed."""
        del state
        return reach

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

    def is_restart(self, step: int) -> bool:
        """Whether everything remembered, by any rule, is dropped after this step."""
        del step
        return False


class Answer(NamedTuple):
    """A step without a solve."""

    move: Tensor  # (P, d_p)
    loss: float  # at the parameters


class Reuse(Rule):
    """A rule that answers steps or cost rows from memory; jitter would be noise to it."""

    def answer(self, state: RuleState, step: int, loss: Callable[[], float]) -> Answer | None:
        """The step without a solve, if the rule has one; `loss` evaluates the parameters."""
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
class PlanReuse(Reuse):
    """Solve on every `every`-th step; between, coast along an average of past moves.

    E ← ema·E + (1 − ema)·move at a solve (E = move at the first); j steps after it the
    particles move by (1 − j/every)·E for the price of a single loss. If that loss has grown
    by more than `limit` times since the solve, a solve is forced. Fit for smooth or slowly
    changing losses; on a jumping one a stale plan answers a question nobody asked.
    """

    every: int = 3
    ema: float = 0.7
    limit: float = 1.5

    def __post_init__(self) -> None:
        check_count("PlanReuse: every", self.every)
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

    def answer(self, state: RuleState, step: int, loss: Callable[[], float]) -> Answer | None:
        """A share of the average, unless it is time to solve or the loss has grown too much."""
        since, before = step % self.every, float(state["loss"])
        if since == 0 or math.isnan(before):
            return None
        now = loss()
        if not now - before <= (self.limit - 1) * abs(before):
            return None
        return Answer((1 - since / self.every) * state["average"], now)


@dataclass(frozen=True, slots=True)
class Absorb(Rule):
    """Every `every` steps: coordinates restart from zero, directions and velocities too."""

    every: int = 20

    def __post_init__(self) -> None:
        check_count("Absorb: every", self.every)

    def is_restart(self, step: int) -> bool:
        """After steps every − 1, 2·every − 1, …."""
        return (step + 1) % self.every == 0


@dataclass(frozen=True, slots=True)
class AdaptiveProbes(Reuse):
    """Reuse the cost row of a particle whose mean loss has not changed.

    "Not changed" is a relative change of at most `tolerance` between its last two
    evaluations. A reused row keeps the directions it was measured along, and is measured
    again after at most `max_age` steps.
    """

    tolerance: float = 1e-4
    max_age: int = 3

    def __post_init__(self) -> None:
        check_not_negative("AdaptiveProbes: tolerance", self.tolerance)
        check_count("AdaptiveProbes: max_age", self.max_age)

    def init(self, move: Tensor) -> RuleState:
        """Nothing measured yet: every row is needed."""
        return {"mean": torch.full((len(move),), torch.nan, dtype=torch.float64)}

    def recall(self, proposal: Proposal, state: RuleState) -> Proposal:
        """The proposal with unchanged rows answered from memory."""
        if "losses" not in state or state["losses"].shape != proposal.remembered.shape:
            return proposal
        reuse = state["steady"] & (state["age"] < self.max_age)
        keep = reuse.to(proposal.directions.device)[:, None, None]
        known = state["directions"].to(proposal.directions)  # from a checkpoint: of the CPU
        directions = torch.where(keep, known, proposal.directions)
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
        age = torch.where(evaluated, 0, state.get("age", torch.zeros(len(mean)).long()) + 1)
        return {
            "mean": mean,
            "steady": change <= self.tolerance * state["mean"].abs(),  # of a reused row, 0 <= …
            "age": age,
            "losses": losses.double(),
            "directions": proposal.directions,
        }


@dataclass(frozen=True, slots=True)
class LeavePlateau(Rule):
    """Reach further while no probe makes a difference, and less far once one does.

    On a plateau every probe of every particle returns the same loss, and a row-wise rule never
    moves again. After such a step both radii are multiplied by `factor`, up to `most` times their
    usual length; after a step in which a row differs they are divided by it, down to the usual
    length. A plateau on the best level that the run has seen is left alone if it has seen worse:
    there the search may be at its goal.
    """

    factor: float = 2.0
    most: float = 64.0

    of_weights: ClassVar[bool] = True  # a redraw of directions does not end a plateau

    def __post_init__(self) -> None:
        for name, value in (("factor", self.factor), ("most", self.most)):
            if not 1 < value < math.inf:
                raise ConfigError(f"LeavePlateau: {name} must be > 1 and finite, got {value}")

    @property
    def patience(self) -> int:
        """Steps until both radii are as long as they get."""
        return math.ceil(math.log(self.most, self.factor))

    def init(self, move: Tensor) -> RuleState:
        """The usual reach, and no loss seen."""
        del move
        start = {"stretch": 1.0, "best": math.inf, "worst": -math.inf}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in start.items()}

    def extend(self, reach: Reach, state: RuleState) -> Reach:
        """Both radii, stretched."""
        stretch = float(state["stretch"])
        lengths = (stretch * reach.step_radius, stretch * reach.probe_radius)
        return Reach(*lengths, reach.num_probes)

    def shape(self, move: Tensor, state: RuleState, context: Context) -> tuple[Tensor, RuleState]:
        """The move as it is; the next step reaches further, or less far."""
        loss, best, worst = context.loss, float(state["best"]), float(state["worst"])
        if not math.isfinite(loss):
            return move, state
        is_dead = context.dead_share == 1
        margin = 1e-9 * max(1.0, abs(loss))  # equal losses weighted by a plan, up to rounding
        is_best = loss <= best + margin and max(worst, loss) > min(best, loss) + margin
        times = 1 / self.factor if not is_dead or is_best else self.factor
        values = {
            "stretch": min(max(times * float(state["stretch"]), 1.0), self.most),
            "best": min(best, loss),
            "worst": max(worst, loss),
        }
        return move, {name: torch.tensor(v, dtype=torch.float64) for name, v in values.items()}


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
        # Before the first step there is no velocity; after a checkpoint it may be on the CPU.
        known = {name: state[f"velocity {name}"] for name in changes if f"velocity {name}" in state}
        velocity = {
            name: beta * known[name].to(change) + change if name in known else change
            for name, change in changes.items()
        }
        return velocity, {f"velocity {name}": value for name, value in velocity.items()}


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
