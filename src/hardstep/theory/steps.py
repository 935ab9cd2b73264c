"""The shipped step for particles that do not see each other, and walks made of such steps.

Every row of a batch is one particle on a loss of its own coordinates, so thousands of
independent runs are the particles of one step. On ½⟨Hz, z⟩ with a cold softmax the step goes
to the best vertex, which is what the analysis of the excursion around a minimum assumes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from hardstep import seeds
from hardstep.geometry import Orthoplex, Polytope, Simplex, haar
from hardstep.optim import Reach, advance, propose
from hardstep.optim.step import Move
from hardstep.solvers import Greedy, RowSoftmax, Solver
from hardstep.theory.numerics import Array, midpoints
from hardstep.theory.spheres import unit_vectors
from hardstep.theory.suite import Setup

Loss = Callable[[Array], Array]  # of points (..., d), giving (...)
Radius = Callable[[int], float | Array]  # of the step; per particle as (P, 1)


def turns(num: int) -> Array:
    """Rotations of the plane by equally spaced angles, for averages over SO(2)."""
    angle = midpoints(0.0, 2 * math.pi, num)
    return np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(
        num, 2, 2
    )


def rotations(seed: int, num: int, dim: int, *purpose: int) -> Array:
    """Independent Haar rotations, (num, dim, dim)."""
    generator = seeds.generator(seed, "theory rotations", num, dim, *purpose)
    return np.asarray(haar(num, dim, generator, torch.float64).numpy())


def directions(frame: Polytope | Array, rotation: Array) -> Array:
    """Rotated vertices, (n, V, d)."""
    vertices = frame if isinstance(frame, np.ndarray) else frame.vertices().numpy()
    return np.asarray(np.einsum("nij,vj->nvi", rotation, vertices))


def frames(dim: int) -> dict[str, Polytope]:
    """The two polytopes of the paper."""
    return {"orthoplex": Orthoplex(dim), "simplex": Simplex(dim)}


@dataclass(frozen=True)
class Stepper:
    """A loss and everything a step needs besides positions and directions."""

    loss: Loss
    reach: Reach
    solver: Solver = field(default_factory=Greedy)
    temperature: float = 1.0

    def step(
        self, at: Array, looks: Array, probe_jitter: float = 0.0, step_jitter: Array | None = None
    ) -> Move:
        """The step of particles at (P, d) that look along (P, V, d)."""
        jitter = torch.from_numpy(np.zeros(len(looks)) if step_jitter is None else step_jitter)
        along = torch.from_numpy(looks)
        proposal = propose(0, along, self.reach, self.temperature, probe_jitter, jitter)
        losses = np.asarray(self.loss(at[:, None, None] + proposal.probes.numpy()), np.float64)
        return advance(proposal, torch.from_numpy(losses), self.solver)

    def move(
        self, at: Array, looks: Array, probe_jitter: float = 0.0, step_jitter: Array | None = None
    ) -> Array:
        """Where that step takes them, (P, d)."""
        return np.asarray(self.step(at, looks, probe_jitter, step_jitter).displacement.numpy())


def step_on(looks: Array, costs: Array, solver: Solver, temperature: float = 1.0) -> Move:
    """The step of unit radius for given costs (P, V) along given directions (P, V, d)."""
    given = Stepper(lambda points: costs[:, :, None], Reach(1.0, 1.0, 1), solver, temperature)
    return given.step(np.zeros_like(looks[:, 0]), looks)


class Steps(NamedTuple):
    """Softmax steps of unit radius, one per set of directions."""

    moves: Array  # (n, d)
    costs: Array  # (n, V)
    shares: Array  # (n, V), the weights, rows summing to one
    directions: Array  # (n, V, d)

    def remainders(self, temperature: float) -> Array:
        """Σ_v(p_v − 1/V + C̃_v/(Vε))Rv_v, what the step adds to its linear part, (n, d)."""
        centered = self.costs - self.costs.mean(axis=1, keepdims=True)
        linear = np.einsum("nv,nvd->nd", centered, self.directions)
        return np.asarray(self.moves + linear / (centered.shape[1] * temperature))


def softmax_steps(
    looks: Array,
    loss: Loss,
    base: Array,
    probe_length: float,
    temperature: float,
    num_probes: int = 1,
) -> Steps:
    """The shipped step for every set of directions (n, V, d), from one base point or n.

    Args:
        looks: Unit directions.
        loss: Of points (..., d).
        base: (d,) or (n, d).
        probe_length: r_pε.
        temperature: ε.
        num_probes: K.
    """
    stepper = Stepper(loss, Reach(1.0, probe_length, num_probes), RowSoftmax(), temperature)
    move = stepper.step(np.broadcast_to(base, (len(looks), looks.shape[2])), looks)
    shares = move.plan.weights.numpy() * len(looks)
    return Steps(move.displacement.numpy(), move.costs.numpy(), shares, looks)


def quadratic(curvature: Array) -> Loss:
    """½⟨Hx, x⟩ for a diagonal H of shape (d,), or one per particle, (P, 1, 1, d)."""
    return lambda points: np.asarray(0.5 * (points**2 * curvature).sum(axis=-1))


def wall(position: float) -> Loss:
    """1 where x_1 has passed the position, else 0."""
    return lambda points: np.asarray(points[..., 0] > position, dtype=np.float64)


def greedy_stepper(curvature: Array, displacement: float) -> Stepper:
    """Unit steps to the best vertex on a quadratic, probed at a distance."""
    return Stepper(quadratic(curvature), Reach(1.0, 2 * displacement, 1))


def radial(moves: Array, at: Array) -> Array:
    """The outward component of moves (P, d) from positions (P, d)."""
    return np.asarray((moves * at).sum(axis=1) / np.linalg.norm(at, axis=1))


def walk(
    setup: Setup,
    purpose: int,
    stepper: Stepper,
    start: Array,
    num_steps: int,
    radius: Radius = lambda step: 1.0,
    copies: int = 1,
) -> Iterator[Array]:
    """Positions (P, d) after each step along a Haar-rotated orthoplex.

    Args:
        setup: Seeds the rotations.
        purpose: Tells walks apart; equal purposes share their rotations.
        stepper: Of unit step radius.
        start: (P, d).
        num_steps: How many.
        radius: Of each step.
        copies: The particles are that many equal parts, and the parts share their rotations.
    """
    at, dim = start, start.shape[1]
    for step in range(num_steps):
        turned = rotations(setup.seed, len(at) // copies, dim, purpose, step)
        looks = directions(Orthoplex(dim), np.tile(turned, (copies, 1, 1)))
        at = np.asarray(at + radius(step) * stepper.move(at, looks))
        yield at


def mean_square(setup: Setup, purpose: int, num: int, dim: int, num_steps: int) -> Array:
    """Mean squared distance of `num` walks that step to a vertex drawn at random, per step."""
    rng, at = setup.rng(purpose), np.zeros((num, dim))
    found = np.empty(num_steps)
    for step in range(num_steps):
        at += unit_vectors(rng, num, dim)  # a vertex under a uniform rotation is uniform
        found[step] = np.einsum("pd,pd->", at, at) / num
    return found
