"""The shipped step for particles that do not see each other, and walks made of such steps.

Every row of a batch is one particle on a loss of its own coordinates, so thousands of
independent runs are the particles of one step. On ½⟨Hz, z⟩ with a cold softmax the step goes
to the best vertex, which is what the analysis of the excursion around a minimum assumes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from hardstep.geometry import Orthoplex
from hardstep.optim import Proposal, Reach, advance, propose
from hardstep.optim.step import Move
from hardstep.solvers import Greedy, Solver
from hardstep.theory.primitives import Array, Loss, directions, rotations
from hardstep.theory.suite import Run

Radius = Callable[[int], float | Array]  # of the step; per particle as (P, 1)


def quadratic(curvature: Array) -> Loss:
    """½⟨Hx, x⟩ for a diagonal H of shape (d,), or one per particle, (P, 1, 1, d)."""
    return lambda points: np.asarray(0.5 * (points**2 * curvature).sum(axis=-1))


def wall(position: float) -> Loss:
    """1 where x_1 has passed the position, else 0."""
    return lambda points: np.asarray(points[..., 0] > position, dtype=np.float64)


def _proposal(
    looks: Array, reach: Reach, temperature: float, probe_jitter: float, step_jitter: Array | None
) -> Proposal:
    jitter = np.zeros(len(looks)) if step_jitter is None else step_jitter
    return propose(
        0, torch.from_numpy(looks), reach, temperature, probe_jitter, torch.from_numpy(jitter)
    )


def step_on(looks: Array, costs: Array, solver: Solver, temperature: float = 1.0) -> Move:
    """The step of unit radius for given costs (P, V) along given directions (P, V, d)."""
    proposal = _proposal(looks, Reach(1.0, 1.0, 1), temperature, 0.0, None)
    return advance(proposal, torch.from_numpy(costs)[:, :, None], solver)


@dataclass(frozen=True)
class Stepper:
    """A loss and everything a step needs besides positions and directions."""

    loss: Loss
    reach: Reach
    solver: Solver = field(default_factory=Greedy)
    temperature: float = 1.0

    def move(
        self,
        at: Array,
        looks: Array,
        probe_jitter: float = 0.0,
        step_jitter: Array | None = None,
    ) -> Array:
        """The moves (P, d) of particles at (P, d) that look along (P, V, d)."""
        proposal = _proposal(looks, self.reach, self.temperature, probe_jitter, step_jitter)
        losses = self.loss(at[:, None, None] + proposal.probes.numpy())
        moved = advance(proposal, torch.from_numpy(losses), self.solver).displacement
        return np.asarray(moved.numpy())


def saturated(curvature: Array, displacement: float) -> Stepper:
    """Unit steps to the best vertex on a quadratic, probed at a distance."""
    return Stepper(quadratic(curvature), Reach(1.0, 2 * displacement, 1))


def unit_vectors(rng: np.random.Generator, num: int, dim: int) -> Array:
    """Independent uniform points of the unit sphere, (num, dim)."""
    gaussian = rng.standard_normal((num, dim))
    return np.asarray(gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True))


def radial(moves: Array, at: Array) -> Array:
    """The outward component of moves (P, d) from positions (P, d)."""
    return np.asarray((moves * at).sum(axis=1) / np.linalg.norm(at, axis=1))


def walk(
    run: Run,
    purpose: int,
    stepper: Stepper,
    start: Array,
    num_steps: int,
    radius: Radius = lambda step: 1.0,
    copies: int = 1,
) -> Iterator[Array]:
    """Positions (P, d) after each step along a Haar-rotated orthoplex.

    Args:
        run: Seeds the rotations.
        purpose: Tells walks apart; equal purposes share their rotations.
        stepper: Of unit step radius.
        start: (P, d).
        num_steps: How many.
        radius: Of each step.
        copies: The particles are that many equal parts, and the parts share their rotations.
    """
    at, dim = start, start.shape[1]
    for step in range(num_steps):
        turned = rotations(run.seed, len(at) // copies, dim, purpose, step)
        looks = directions(Orthoplex(dim), np.tile(turned, (copies, 1, 1)))
        at = np.asarray(at + radius(step) * stepper.move(at, looks))
        yield at


def mean_square(run: Run, purpose: int, num: int, dim: int, num_steps: int) -> Array:
    """Mean squared distance of `num` walks that step to a vertex drawn at random, per step."""
    rng, at = run.rng(purpose), np.zeros((num, dim))
    found = np.empty(num_steps)
    for step in range(num_steps):
        at += unit_vectors(rng, num, dim)  # a vertex under a uniform rotation is uniform
        found[step] = np.einsum("pd,pd->", at, at) / num
    return found
