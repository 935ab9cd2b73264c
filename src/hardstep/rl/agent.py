"""An agent: a policy in an environment, as a module from episode seeds to returns.

    returns = agent(seeds)         (M,) seeds → (M,) returns
    loss    = minus_return(returns)

That is all that `fit`, `compare` and the baselines need to know of reinforcement learning: seeds
are the batch, minus the mean return is the loss. `Rollouts` evaluates candidates: all of them play
the same seeds in one call of the environment. It is what `PolyStep(agent)` uses unless it is given
another evaluator; a plain one calls `agent(seeds)` per candidate and finds the same losses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardstep._checks import check_count
from hardstep.errors import ConfigError
from hardstep.evaluation import Candidates, Problem, Span
from hardstep.evaluation.sharing import Piece, Questions, follow
from hardstep.optim.quantities import return_radius
from hardstep.rl.environments import Environment, Episodes
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Array

TILE = 64  # candidates whose weights are built together, at most: what workers share
TOGETHER = 4096  # candidates that play together, at most


def minus_return(returns: Tensor, target: Any = None) -> Tensor:
    """The loss of an agent: minus the mean return."""
    del target  # a batch of seeds has none
    return -returns.double().mean()


class Agent(nn.Module):
    """A policy that plays an environment.

    Args:
        policy: Fits the environment's observations and actions.
        environment: What it plays.
        first: Episodes that every candidate plays before it is asked whether the batch's others
            are needed, too (see `Rollouts`); all of the batch if left out.

    Attributes:
        interactions: Steps of the environment taken for candidates so far.
    """

    kept_by_driver = ("interactions",)  # workers need not know

    def __init__(self, policy: Policy, environment: Environment, first: int | None = None) -> None:
        super().__init__()
        if policy.observations != environment.observations or policy.space != environment.space:
            raise ConfigError(
                f"Agent: the policy takes {policy.observations} observations and gives "
                f"{policy.space}, {environment.name} has {environment.observations} and takes "
                f"{environment.space}"
            )
        if first is not None:
            check_count("Agent: first", first)
        self.policy = policy
        self.environment = environment
        self.first = first
        self.interactions = 0

    @property
    def evaluator(self) -> "Rollouts":
        """How the losses of its candidates are found."""
        return Rollouts(self.first)

    def forward(self, seeds: Tensor) -> Tensor:
        """The return of an episode per seed, (M,); these interactions are not counted."""
        return torch.from_numpy(self.play(seeds).returns[0])

    def play(self, seeds: Tensor) -> Episodes:
        """An episode of the policy as it is for every seed."""
        own = {name: value[None] for name, value in self.policy.named_parameters()}
        return self.environment.play(self.policy.stack(own), seeds.tolist())


@dataclass(frozen=True)
class Rollouts:
    """Evaluates the candidates of an agent: all play the same seeds.

    With `first`, a step begins with that many of the batch's episodes. It doubles them, for all
    candidates alike, as long as the spread of returns hides the differences within cost rows:
    while the radius of confidence of the theorem on policy search (`quantities.return_radius`),
    with the spread of the differences on common seeds in place of its worst case, is larger than
    the range of the row. Half of the rows have to be resolved. What a step has
    learned of that is forgotten by the next, so that a resumed run is the same run.

    Args:
        first: Episodes to begin with; all of the batch if left out.
    """

    first: int | None = None
    path = "rollouts"

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,)."""
        opened, num = self.open(candidates, problem), len(candidates)
        questions = self.ask(candidates, problem)
        return follow(questions, lambda question: opened.piece(question, 0, num).rows)

    def open(self, candidates: Candidates, problem: Problem) -> "_Players":
        """What plays episodes with any range of candidates."""
        agent, seeds = _check(problem)
        return _Players(agent, seeds, candidates)

    def ask(self, candidates: Candidates, problem: Problem) -> Questions:
        """Which of the batch's episodes are played next; the agent takes in what they tell."""
        agent, seeds = _check(problem)
        total = len(seeds)
        num = total if self.first is None else min(self.first, total)
        returns = _note(agent, num, (yield 0, num))
        rows = candidates.offsets.shape[0]
        while num < total and not _is_resolved(returns, rows):
            more = min(2 * num, total)
            added = _note(agent, more - num, (yield num, more))
            returns, num = np.concatenate([returns, added], axis=1), more
        each = (problem.loss_fn(torch.from_numpy(row), problem.target) for row in returns)
        return torch.stack([loss.double().reshape(()) for loss in each])


def _check(problem: Problem) -> tuple[Agent, Tensor]:
    agent, seeds = problem.model, problem.inputs
    if not isinstance(agent, Agent) or not isinstance(seeds, Tensor):
        raise ConfigError(
            f"Rollouts evaluates an Agent on a tensor of seeds, got a {type(agent).__name__} "
            f"and a {type(seeds).__name__}"
        )
    return agent, seeds


@dataclass(frozen=True, eq=False)
class _Players:
    """Candidates that play; nothing of it is counted here, since a range may be played twice."""

    agent: Agent
    seeds: Tensor
    candidates: Candidates

    def piece(self, question: tuple[int, int], start: int, stop: int) -> Piece:
        """Returns, interactions and, if the policy wants them, sums of observations and squares."""
        seeds = self.seeds[slice(*question)].tolist()
        size = self.candidates.share_size(TILE)
        tiles = [tile for tile in self.candidates.tiles(size) if start <= tile.start < stop]
        if not tiles:
            return Piece(start, torch.empty(0))
        each = TOGETHER // size
        groups = [tiles[i : i + each] for i in range(0, len(tiles), each)]
        rows = np.concatenate([self._play(group, seeds) for group in groups])
        return Piece(tiles[0].start, torch.from_numpy(rows))

    def _play(self, tiles: Sequence[Span], seeds: Sequence[int]) -> Array:
        policy = self.agent.policy
        stacks = [self.candidates.stacked(tile) for tile in tiles]
        joined = {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
        stack = policy.stack(joined, prefix="policy.")
        played = self.agent.environment.play(stack, seeds, policy.normalize)
        columns = [played.returns, played.lengths.sum(axis=1)[:, None]]
        if policy.normalize:
            assert played.sums is not None
            assert played.squares is not None
            columns += [played.sums.sum(axis=1), played.squares.sum(axis=1)]
        return np.concatenate(columns, axis=1)


def _note(agent: Agent, episodes: int, rows: Tensor) -> Array:
    """The returns (N, M) in rows; the agent counts interactions and sees what was observed.

    Sums run over all candidates in their order, whoever played them.
    """
    table = rows.numpy()
    returns, lengths, observed = np.split(table, [episodes, episodes + 1], axis=1)
    played = np.isfinite(lengths[:, 0])  # not those whose worker gave no answer
    if not played.all():
        lengths, observed = lengths[played], observed[played]
    agent.interactions += int(lengths.sum())
    if agent.policy.normalize:
        sums, squares = np.split(observed.sum(axis=0), 2)
        agent.policy.observe(sums, squares, float(lengths.sum()))
    return np.ascontiguousarray(returns)


def _is_resolved(returns: Array, rows: int) -> bool:
    """Whether episodes suffice to tell the candidates of most rows apart."""
    num, episodes = returns.shape
    if episodes < 2:
        return False
    table = np.nan_to_num(returns, nan=0.0, posinf=0.0, neginf=0.0).reshape(rows, -1, episodes)
    means = table.mean(axis=2)
    ranges = means.max(axis=1) - means.min(axis=1)
    # On common seeds neither the luck of a seed nor the level of a candidate is noise.
    noise = table - table.mean(axis=1, keepdims=True) - means[:, :, None]
    noise += means.mean(axis=1)[:, None, None]
    spread = np.sqrt((noise**2).mean(axis=(1, 2)) * episodes / (episodes - 1))
    live = (spread > 0) | (ranges > 0)  # where nothing differs, further episodes are no remedy
    if not live.any():
        return True
    radius = return_radius(1, 1.0, num, episodes) * spread
    return bool((ranges >= radius)[live].mean() >= 0.5)
