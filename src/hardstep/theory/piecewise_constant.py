"""Piecewise constant losses: hitting a region of success, and detecting it."""

import math
from itertools import combinations

import numpy as np

from hardstep import seeds
from hardstep.geometry import Mollifier, Orthoplex, Polytope, Simplex
from hardstep.optim import Reach
from hardstep.solvers import RowSoftmax
from hardstep.theory.numerics import Array
from hardstep.theory.radii import RadiusLaw
from hardstep.theory.steps import Stepper, directions, rotations, step_on, wall
from hardstep.theory.suite import Evidence, Setup, check


def _success_steps(probe_multiple: float) -> Stepper:
    """Steps toward x_1 > 0, ε = 0.1 and r_s = 1."""
    beyond = wall(0.0)
    reach = Reach(0.1, 0.1 * probe_multiple, 1)
    return Stepper(lambda points: 1 - beyond(points), reach, RowSoftmax(), 0.1)


def _step_jittered(setup: Setup, stepper: Stepper, offsets: Array, *purpose: int) -> Array:
    """x_1 after one step from each offset; both radii jittered by up to a fifth."""
    generator = seeds.generator(setup.seed, "theory hitting", *purpose)
    probe = float(Mollifier(0.2).draw(1, generator))
    step = Mollifier(0.2).draw(len(offsets), generator).numpy()
    looks = directions(Simplex(2), rotations(setup.seed, len(offsets), 2, 100, *purpose))
    at = np.stack([offsets, np.zeros_like(offsets)], axis=1)
    return np.asarray((at + stepper.move(at, looks, probe, step))[:, 0])


def _success_rates(setup: Setup, stepper: Stepper, offsets: Array, draws: int) -> Array:
    """How often one step from each offset succeeds."""
    groups, hits = 40, np.zeros(len(offsets))
    for group in range(groups):  # all particles of a step share its probe jitter
        starts = np.repeat(offsets, draws // groups)
        hits += (
            (_step_jittered(setup, stepper, starts, group) > 0)
            .reshape(len(offsets), -1)
            .sum(axis=1)
        )
    return hits / draws


def _survival(setup: Setup, stepper: Stepper, start: float, num: int, horizon: int) -> Array:
    """The share of chains that have neither succeeded nor left the reach, after each step."""
    groups, alive = 40, np.zeros(horizon)
    for group in range(groups):
        at = np.full(num // groups, start)
        for step in range(horizon):
            at = _step_jittered(setup, stepper, at, group, step)
            at = at[(at <= 0) & (at >= -0.1)]
            alive[step] += len(at)
            if not len(at):
                break
    return alive / num


def _one_vertex_hit(distance: float) -> float:
    """The probability that a step hits success at a distance near r_sε = 0.1.

    Only a single cheap vertex carries that far: by 0.1·share·(1 + η) along one of three
    directions, within an angle of the normal.
    """
    rest = math.exp(-10.0)  # the weight of a vertex that costs 1, at ε = 0.1
    share = (1 - rest) / (1 + 2 * rest)
    length = RadiusLaw(0.2 * share, eta_max=0.2)  # its center is 0.1·share
    return length.expect(lambda r: 3 / math.pi * np.arccos(np.minimum(distance / r, 1.0)), distance)


@check("L1", "piecewise-constant", "M")
def hitting_time(setup: Setup) -> Evidence:
    """Within reach of success, staying out is geometrically rare."""
    num, horizon = 20_000, 40

    def facts(probe_multiple: float, offsets: Array, start: float) -> dict[str, float]:
        stepper = _success_steps(probe_multiple)
        least = float(_success_rates(setup, stepper, offsets, num).min())
        alive = _survival(setup, stepper, start, num, horizon)
        bound = (1 - least) ** np.arange(1, horizon + 1)
        return {
            "p_0": least,
            "survival, T = 1": float(alive[0]),
            "survival, T = 2": float(alive[1]),
            "excess over (1 − p_0)^T": float((alive - bound).max()),
        }

    expected = {"p_0": _one_vertex_hit(0.1), "survival, T = 1": 1 - _one_vertex_hit(0.099)}
    tol = 4 * math.sqrt(expected["p_0"] / num)
    return Evidence(
        facts(4.0, -0.1 * np.arange(1, 51) / 50, -0.099), expected, tol,
        {"probes that do not reach": facts(0.5, np.array([-0.05]), -0.05)},
        also=lambda v: v["excess over (1 − p_0)^T"] <= 0.01,
        note="p_0 at the rim has a closed form, 0.158 for the shipped jitter; the specification's "
        "0.140 could not be reproduced with it.",
    )  # fmt: skip


def _two_valued(
    frame: Polytope, cheap: tuple[int, ...], cost: float, turned: Array
) -> dict[str, float]:
    """How the step on a row of 0 and `cost` compares with its closed form, at ε = 0.4."""
    temperature, chosen = 0.4, list(cheap)
    costs = np.full((1, frame.num_vertices), cost)
    costs[0, chosen] = 0.0
    move = step_on(directions(frame, turned), costs, RowSoftmax(), temperature)
    step = move.displacement[0].numpy()
    rest = math.exp(-cost / temperature)
    share = 1 / (len(cheap) + (frame.num_vertices - len(cheap)) * rest)
    pull = frame.vertices().numpy()[chosen].sum(axis=0)
    square = float(pull @ pull)
    formula = len(cheap) * (frame.dim + 1 - len(cheap)) / frame.dim
    return {
        "step": float(np.abs(step - share * (1 - rest) * turned[0] @ pull).max()),
        "‖Σv‖²": abs(square - formula),
        "room over 1": square - 1,
        "room over the floor": float(np.linalg.norm(step)) - (1 - rest) / frame.num_vertices,
    }


@check("L2", "piecewise-constant", "X")
def detectability(setup: Setup) -> Evidence:
    """A two-valued row moves a simplex by a known step, never by zero."""
    turned = {dim: rotations(setup.seed, 1, dim, 2) for dim in (2, 3, 4)}
    found = [
        _two_valued(Simplex(dim), cheap, cost, turned[dim])
        for dim in turned
        for size in range(1, dim + 1)
        for cheap in combinations(range(dim + 1), size)
        for cost in (1.0, 1 / 3)  # the least that averages of one and of three probes can be
    ]
    rooms = ("room over 1", "room over the floor")
    extremes = {n: (min if n in rooms else max)(one[n] for one in found) for n in found[0]}
    pair = np.array([[0.0, 0.0, 1.0, 1.0]])
    still = step_on(directions(Orthoplex(2), turned[2]), pair, RowSoftmax(), 0.4).displacement
    measured = extremes | {"orthoplex pair": float(still.norm())}
    expected = {"step": 0.0, "‖Σv‖²": 0.0, "orthoplex pair": 0.0}
    wrong = measured | _two_valued(Orthoplex(2), (0, 1), 1.0, turned[2])
    return Evidence(
        measured, expected, 1e-14, {"an orthoplex pair as if on a simplex": wrong},
        also=lambda v: min(v[name] for name in rooms) >= -1e-14,
    )  # fmt: skip
