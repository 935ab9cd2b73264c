"""Plateau freeze: no rule that reads one constant row moves."""

from collections.abc import Iterator

import numpy as np
import torch

from hardstep import seeds
from hardstep.geometry import Biased, Mollifier, Simplex
from hardstep.optim import Momentum, Reach
from hardstep.optim.rules import Context
from hardstep.solvers import Greedy, RowSoftmax, Solver, TopK
from hardstep.theory.numerics import Array
from hardstep.theory.radii import RadiusLaw
from hardstep.theory.spheres import unit_vectors
from hardstep.theory.steps import Stepper, directions, frames, rotations, step_on, wall
from hardstep.theory.suite import Evidence, Setup, check


def _laws(setup: Setup, num: int) -> Iterator[Array]:
    """Rotations of the plane: uniform, and biased toward a previous move."""
    yield rotations(setup.seed, num, 2, 6)
    moved = torch.from_numpy(unit_vectors(setup.rng(6), num, 2))
    yield Biased().draw(moved, seeds.generator(setup.seed, "theory biased")).numpy()


def _constant_steps(setup: Setup) -> float:
    """The longest step on a constant row, over rules, rotation laws, frames, temperatures."""
    rules: tuple[Solver, ...] = (RowSoftmax(), Greedy(), TopK(2))
    longest = 0.0
    for turned in _laws(setup, 1000):
        for frame in frames(2).values():
            looks, costs = directions(frame, turned), np.full((1000, frame.num_vertices), 0.37)
            for rule in rules:
                for temperature in (1e-3, 1.0, 1e3):
                    moves = step_on(looks, costs, rule, temperature).displacement
                    longest = max(longest, float(moves.norm(dim=1).max()))
    return longest


def _plateau_step(setup: Setup, share: float) -> float:
    """The longest step from the middle of a plateau with a wall at a share of δ_out."""
    law = RadiusLaw(1.0, num_probes=3, eta_max=0.5)
    stepper = Stepper(wall(share * law.outer), Reach(1.0, law.length, 3), RowSoftmax())
    looks = directions(Simplex(2), rotations(setup.seed, 1000, 2, 6))
    jitters = Mollifier(law.eta_max).draw(20, seeds.generator(setup.seed, "theory plateau"))
    at = np.zeros((1000, 2))
    moves = [stepper.move(at, looks, jitter) for jitter in (*jitters.tolist(), law.eta_max)]
    return max(float(np.linalg.norm(move, axis=1).max()) for move in moves)


def _coast(beta: float) -> float:
    """How far momentum carries a particle after it has entered a plateau at unit speed."""
    rule, still = Momentum(beta), torch.zeros(1, 2, dtype=torch.float64)
    state = {"velocity": torch.tensor([[1.0, 0.0]], dtype=torch.float64)}
    total = 0.0
    for step in range(1000):
        move, state = rule.shape(still, state, Context(step, 0.0, 1.0, lambda: still))
        total += float(move[0, 0])
    return total


@check("H6", "plateau-freeze", "X")
def freeze(setup: Setup) -> Evidence:
    """No rule that reads one row leaves a plateau wider than its probes."""
    first = directions(Simplex(2), rotations(setup.seed, 10_000, 2, 7))[:, 0]
    measured = {
        "constant row": _constant_steps(setup),
        "wall outside δ_out": _plateau_step(setup, 1 + 1e-9),
        "coasting": _coast(0.9),
        "mean of first vertices, √n": float(np.linalg.norm(first.mean(axis=0))) * 100,
    }
    labeled = float(np.linalg.norm(first, axis=1).max())
    expected = {"constant row": 0.0, "wall outside δ_out": 0.0, "coasting": 0.9 / (1 - 0.9)}
    return Evidence(
        measured, expected, 1e-14,
        {
            "wall inside δ_out": measured | {"wall outside δ_out": _plateau_step(setup, 0.8)},
            "ties to the first vertex": measured | {"constant row": labeled},
        },
        tols={"coasting": 1e-12}, also=lambda v: v["mean of first vertices, √n"] <= 4,
        paper={"constant row": 0.0}, paper_tol=1e-14,
        note="Ties broken by label do move, by unit steps of mean zero; momentum coasts βv/(1−β).",
    )  # fmt: skip
