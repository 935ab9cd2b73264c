"""Theorem exact-step: the step constant and the softmax remainder.

The expected step is −c∇L_δ + e with c = r_p/(2d); e = E[Σ_v(p_v − 1/V + C̃_v/(Vε))Rv_v] is what
the softmax adds to its linear part, C̃ being the centered cost row. On a smooth loss e is of order
r_p³: pointwise in the rotation on the orthoplex, on average on the simplex.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hardstep.optim.quantities import step_constant
from hardstep.solvers import RowSoftmax
from hardstep.theory.numerics import Array, Curve, Curves, farthest, slope
from hardstep.theory.steps import Loss, directions, frames, rotations, softmax_steps, turns
from hardstep.theory.suite import Evidence, Setup, Values, check

FINE = [0.00625 * 2**j for j in range(5)]  # r_p of the quadratures in the plane
COARSE = [0.05 * 2**j for j in range(5)]  # r_p of the Monte Carlo
ANGLES = 3600
TEMPERATURE = 1.0


def _base_point(dim: int) -> Array:
    """A base point that is on the wall x_1 = 0."""
    base = np.zeros(dim)
    base[1] = 0.3
    return base


@dataclass(frozen=True)
class Waves:
    """Σ sin(a_i·x + c_i), a smooth loss without symmetry."""

    normals: Array  # (n, d)
    phases: Array  # (n,)

    @classmethod
    def draw(cls, rng: np.random.Generator, dim: int) -> "Waves":
        """Three random waves that are not flat at the base point, where orders would blur."""
        while True:
            waves = cls(0.6 * rng.standard_normal((3, dim)), rng.uniform(0, 2 * math.pi, 3))
            if np.linalg.norm(waves.gradient(_base_point(dim))) >= 0.5:
                return waves

    def __call__(self, points: Array) -> Array:
        """The loss at points (..., d)."""
        return np.asarray(np.sin(points @ self.normals.T + self.phases).sum(axis=-1))

    def gradient(self, point: Array) -> Array:
        """Its gradient at one point (d,)."""
        return np.asarray(np.cos(self.normals @ point + self.phases) @ self.normals)


def _add_bend(loss: Loss) -> Loss:
    """The loss plus ½ sgn(x_1)x_1²: its Hessian jumps at x_1 = 0."""
    return lambda points: loss(points) + 0.5 * np.sign(points[..., 0]) * points[..., 0] ** 2


def _add_wall(loss: Loss) -> Loss:
    """The loss plus a jump of 3ε at x_1 = 0."""
    return lambda points: loss(points) + 3 * TEMPERATURE * (points[..., 0] > 0)


Claim = Callable[[float, int], float]  # the step constant of r_p and d


def _coefficient(looks: Array, waves: Waves, probe_multiple: float, claim: Claim) -> float:
    """−⟨mean step, g⟩/‖g‖² over twice the claimed constant, so ½ if the claim is right."""
    dim = looks.shape[2]
    base = _base_point(dim)
    gradient = waves.gradient(base)
    moves = softmax_steps(looks, waves, base, probe_multiple, TEMPERATURE).moves
    along = -float(moves.mean(axis=0) @ gradient) / float(gradient @ gradient)
    return along / (2 * claim(probe_multiple, dim))


@check("D2", "exact-step", "Q")
def step_size(setup: Setup) -> Evidence:
    """The mean step is r_p/(2d) times the gradient, for both frames."""
    num = 10_000 if setup.quick else 100_000
    cases = {}
    for dim, probe_multiple in ((2, 0.0125), (4, 0.05), (8, 0.05)):
        turned = turns(ANGLES) if dim == 2 else rotations(setup.seed, num, dim)
        waves = Waves.draw(setup.rng(dim), dim)
        for kind, frame in frames(dim).items():
            cases[f"{kind}, d = {dim}"] = (directions(frame, turned), waves, probe_multiple)
    expected = dict.fromkeys(cases, 0.5)
    tols = {name: 1e-4 for name in cases if name.endswith("2")}

    def coefficients(claim: Claim) -> Values:
        return {name: _coefficient(*case, claim) for name, case in cases.items()}

    return Evidence(
        coefficients(step_constant), expected, 5e-4,
        {
            "the constant r_p/d²": coefficients(lambda multiple, dim: multiple / dim**2),
            "the constant r_p/d": coefficients(lambda multiple, dim: multiple / dim),
        },
        tols=tols, paper=expected, paper_tol=5e-4,
        note="In the plane r_p/d² and r_p/(2d) coincide; d = 4 and 8 tell them apart.",
    )  # fmt: skip


def _sizes(looks: Array, loss: Loss, multiples: list[float]) -> Array:
    """E‖e‖ (pointwise in the rotation) and ‖E e‖ (averaged) over r_p, (2, n)."""
    base, sizes = _base_point(looks.shape[2]), []
    for multiple in multiples:
        steps = softmax_steps(looks, loss, base, multiple * TEMPERATURE, TEMPERATURE)
        errors = steps.remainders(TEMPERATURE)
        norm = np.linalg.norm(errors.mean(axis=0))
        sizes.append((float(np.linalg.norm(errors, axis=1).mean()), float(norm)))
    return np.array(sizes).T


def _orders(looks: Array, loss: Loss, multiples: list[float]) -> list[float]:
    """Exponents in r_p of both."""
    return [slope(multiples, sizes) for sizes in _sizes(looks, loss, multiples)]


def _planar_orders(setup: Setup) -> dict[str, float]:
    """By quadrature over angles, on smooth and broken losses."""
    waves = Waves.draw(setup.rng(2), 2)
    losses: dict[str, Loss] = {"": waves, ", bent": _add_bend(waves)}
    walls: list[float] = []
    values: dict[str, float] = {}
    for kind, frame in frames(2).items():
        looks = directions(frame, turns(ANGLES))
        for name, loss in losses.items():
            pointwise, averaged = _orders(looks, loss, FINE)
            values |= {f"{kind}{name}, pointwise": pointwise, f"{kind}{name}, averaged": averaged}
        values[f"{kind}, one rotation"] = _orders(looks[400:401], waves, FINE)[1]
        walls += _orders(looks, _add_wall(waves), FINE)
    return values | {"on a wall": farthest(walls, 0.0)}


def _sampled_orders(setup: Setup, dim: int) -> dict[str, float]:
    """By Haar rotations, in pairs ±R where both are rotations; in odd dimensions they are not.

    A pair cancels at once what otherwise takes many rotations to average out.
    """
    if dim % 2:
        turned = rotations(setup.seed, 100_000, dim)
    else:
        turned = rotations(setup.seed, 2_000 if setup.quick else 50_000, dim)
        turned = np.concatenate([turned, -turned])
    waves = Waves.draw(setup.rng(dim), dim)
    values = {}
    for kind, frame in frames(dim).items():
        pointwise, averaged = _orders(directions(frame, turned), waves, COARSE)
        values[f"{kind}, d = {dim}, pointwise"] = pointwise
        values[f"{kind}, d = {dim}, averaged"] = averaged
    return values


def _expected_order(name: str) -> float:
    if name == "on a wall":
        return 0.0
    cubic = name.startswith("orthoplex") or name.endswith("averaged")
    return 3.0 if cubic else 2.0


@check("D3", "exact-step", "Q")
def remainder_orders(setup: Setup) -> Evidence:
    """The softmax remainder is cubic in r_p, on the simplex by its average only."""
    measured = _planar_orders(setup)
    for dim in (3, 4) if setup.quick else (3, 4, 5, 8):
        measured |= _sampled_orders(setup, dim)
    expected = {name: _expected_order(name) for name in measured}
    tols = {name: 0.15 for name in expected if "d =" in name or "wall" in name}
    fixed = {"simplex, averaged": measured["simplex, one rotation"]}
    return Evidence(
        measured, expected, 0.05, {"the simplex at one rotation": measured | fixed}, tols=tols,
        paper={
            "orthoplex, averaged": 3.00, "simplex, averaged": 2.96, "simplex, pointwise": 2.13,
            "simplex, bent, pointwise": 2.08, "simplex, bent, averaged": 2.99,
            "simplex, one rotation": 2.00,
        },
        paper_tol=0.15,
        note="The paper's 2.13, 2.08 and 2.00 are the simplex's: the orthoplex keeps order 3 at "
        "any one rotation. Its 0.29 and 0.15 next to a jump have an unstated distance to the wall.",
    )  # fmt: skip


KAPPA = math.e - 2


def _linearization_error(logits: Array) -> float:
    """The largest |V·softmax_v − 1 − z̃_v|/‖z̃‖²_∞ over rows with ‖z̃‖_∞ ≤ 1."""
    centered = logits - logits.mean(axis=1, keepdims=True)
    size = np.abs(centered).max(axis=1, keepdims=True)
    plan = RowSoftmax().solve(torch.from_numpy(-centered), 1.0)
    shares = plan.weights.numpy() * len(logits) * logits.shape[1]
    return float((np.abs(shares - 1 - centered) / size**2)[size[:, 0] <= 1].max())


def _lone_peak(columns: int) -> Array:
    """One entry 1, the rest −1/(V − 1): the row that attains the constant as V grows."""
    row = np.full((1, columns), -1 / (columns - 1))
    row[0, 0] = 1.0
    return row * (1 - 1e-12)  # rounding must not push it past 1


def _search_constant(rng: np.random.Generator) -> float:
    rows = []
    for columns in (2, 3, 4, 8, 16):
        logits = rng.uniform(-1, 1, (20_000, columns))
        logits -= logits.mean(axis=1, keepdims=True)
        size = np.abs(logits).max(axis=1, keepdims=True)
        rows.append(_linearization_error(logits / size * rng.uniform(0.01, 1, size.shape)))
    return max([*rows, *(_linearization_error(_lone_peak(v)) for v in (10, 100, 1000))])


def _share_of_bound(setup: Setup, kappa: float) -> float:
    """The largest ‖e‖ over its bound, on smooth, bent and walled losses."""
    waves, shares = Waves.draw(setup.rng(2), 2), []
    for frame in frames(2).values():
        looks = directions(frame, turns(720))
        for loss in (waves, _add_bend(waves), _add_wall(waves)):
            for multiple in (0.05, 0.2, 0.8, 3.2):
                steps = softmax_steps(looks, loss, _base_point(2), multiple, TEMPERATURE)
                spread = np.ptp(steps.costs, axis=1) / TEMPERATURE
                bound = np.where(spread <= 1, kappa * spread**2, 1 + spread).mean()
                error = np.linalg.norm(steps.remainders(TEMPERATURE).mean(axis=0))
                shares.append(float(error / bound))
    return max(shares)


@check("D7", "exact-step", "X")
def softmax_constant(setup: Setup) -> Evidence:
    """The softmax is linear up to (e − 2)·spread², and the remainder keeps its bound."""
    found = _search_constant(setup.rng())
    peak = _linearization_error(_lone_peak(1000))
    exact = 1000 * math.e / (math.e + 999 * math.exp(-1 / 999)) - 2

    def shares(kappa: float) -> Values:
        return {
            "error over bound": found / kappa,
            "one entry of 1000": peak,
            "remainder over bound": _share_of_bound(setup, kappa),
        }

    return Evidence(
        shares(KAPPA), {"one entry of 1000": exact}, 1e-9, {"the constant 0.4": shares(0.4)},
        also=lambda v: max(v["error over bound"], v["remainder over bound"]) <= 1,
    )  # fmt: skip


def tabulate_remainders() -> tuple[Curves, Curves]:
    """E‖e‖ and ‖E e‖ over r_p in the plane, by frame and loss (D3)."""
    waves, multiples = Waves.draw(Setup().rng(2), 2), np.array(FINE)
    broken = {"Hessian jump": _add_bend(waves), "loss jump": _add_wall(waves)}
    losses: dict[str, Loss] = {"smooth": waves} | broken
    pointwise, averaged = {}, {}
    for kind, frame in frames(2).items():
        for name, loss in losses.items():
            norms, means = _sizes(directions(frame, turns(ANGLES)), loss, FINE)
            pointwise[f"{kind}, {name}"] = Curve(multiples, norms)
            averaged[f"{kind}, {name}"] = Curve(multiples, means)
    return pointwise, averaged
