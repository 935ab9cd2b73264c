"""The curves of the figures: what the checks measure, over a range instead of at a few points."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardstep.geometry import Orthoplex
from hardstep.nn import quantize
from hardstep.theory.group_a import ball_smoothed
from hardstep.theory.group_c_kernels import ONE_PROBE
from hardstep.theory.group_d_remainder import (
    ANGLES,
    FINE,
    TEMPERATURE,
    Waves,
    _bent,
    _walled,
    base_point,
)
from hardstep.theory.group_e import FRAMES
from hardstep.theory.group_e_occupancy import HALF_SPACING, TUBES, _descend, _swing, _visit
from hardstep.theory.group_g import FAR
from hardstep.theory.group_g_walks import DECAY, _amplitudes
from hardstep.theory.group_h import _instance, _weights
from hardstep.theory.group_h_plateau import _ghost, _ghost_costs, _mean_norms
from hardstep.theory.group_i import BIN, _flat_fraction, flat_anywhere, flat_at_centres
from hardstep.theory.primitives import (
    Array,
    Function,
    Loss,
    best_axis_overlap,
    directions,
    probe_gradient,
    rotations,
    slope,
    softmax_steps,
    tail_gradient,
    turns,
    uneven_step,
)
from hardstep.theory.suite import Run
from hardstep.theory.walks import mean_square, radial, saturated, unit_vectors, walk


@dataclass(frozen=True)
class Curve:
    """Values over an axis."""

    x: Array
    y: Array

    @property
    def order(self) -> float:
        """The exponent fitted over the whole range."""
        return slope(self.x, self.y)

    @property
    def last_order(self) -> float:
        """The exponent between the last two points."""
        return slope(self.x[-2:], self.y[-2:])


Curves = dict[str, Curve]


def _curve(x: Array, function: Callable[[float], float]) -> Curve:
    return Curve(x, np.array([function(float(value)) for value in x]))


# -- A, C ---------------------------------------------------------------------------------------

LOSSES: dict[str, Function] = {
    "step": lambda x: np.where(x > 0, 1.0, 0.0),
    "uneven step": uneven_step,
    "|x|, no jump": np.abs,
}


def blow_up() -> tuple[Curves, Curves]:
    """The largest gradient and curvature over the ball's radius h, by loss (A2)."""
    radii = 0.1 * 2.0 ** -np.arange(6.0)[::-1]
    gradients, curvatures = {}, {}
    for name, loss in LOSSES.items():
        grids = [np.linspace(-2 * radius, 2 * radius, 401) for radius in radii]
        both = [ball_smoothed(loss, x, r) for x, r in zip(grids, radii, strict=True)]
        gradients[name] = Curve(radii, np.array([np.abs(first).max() for first, _ in both]))
        curvatures[name] = Curve(radii, np.array([np.abs(second).max() for _, second in both]))
    return gradients, curvatures


def two_gradients(dim: int) -> Curves:
    """Both gradients of a unit step times δ over the offset in units of δ (C4)."""
    law = ONE_PROBE
    offsets = np.linspace(0.0, law.outer / law.mean * 1.04, 80)
    return {
        "tail kernel": _curve(offsets, lambda s: law.mean * tail_gradient(law, dim, s * law.mean)),
        "probe law": _curve(offsets, lambda s: law.mean * probe_gradient(law, dim, s * law.mean)),
    }


# -- D, E ---------------------------------------------------------------------------------------


def remainders() -> tuple[Curves, Curves]:
    """E‖e‖ and ‖E e‖ over r_p in the plane, by frame and loss (D3)."""
    smooth, multiples = Waves.draw(Run().rng(2), 2), np.array(FINE)
    losses: dict[str, Loss] = {
        "smooth": smooth,
        "Hessian jump": _bent(smooth),
        "loss jump": _walled(smooth),
    }
    pointwise, averaged = {}, {}
    for kind, frame in FRAMES.items():
        looks = directions(frame, turns(ANGLES))
        for name, loss in losses.items():
            steps = [
                softmax_steps(looks, loss, base_point(2), multiple * TEMPERATURE, TEMPERATURE)
                for multiple in FINE
            ]
            errors = [step.remainders(TEMPERATURE) for step in steps]
            norms = [np.linalg.norm(error, axis=1).mean() for error in errors]
            means = [np.linalg.norm(error.mean(axis=0)) for error in errors]
            pointwise[f"{kind}, {name}"] = Curve(multiples, np.array(norms))
            averaged[f"{kind}, {name}"] = Curve(multiples, np.array(means))
    return pointwise, averaged


def occupancy() -> Curves:
    """Shares of a path near walls over the tube's half-width in units of L (E5, E6)."""
    tubes = np.array(TUBES)
    visits = [[_visit(path, tube) for path in _descend(Run(), tube, 2)] for tube in TUBES]
    swings = [_visit(_swing(tube, 0.1 * tube), tube).occupancy for tube in TUBES]
    shares = [np.mean([visit.occupancy for visit in found]) for found in visits]
    bounds = [np.mean([visit.bound for visit in found]) for found in visits]
    return {
        name: Curve(tubes / HALF_SPACING, np.array(values))
        for name, values in (("descent", shares), ("bound", bounds), ("swing", swings))
    }


# -- G ------------------------------------------------------------------------------------------


def drifts() -> Curves:
    """The mean radial step at ‖z‖ = r_sε in R⁴ over the condition number (G3, G5)."""
    num, conditions = 50_000, np.array([1, 1.1, 1.3, 1.6, 2, 3, 5, 10, 30, 100, 300, 1000])
    looks = directions(Orthoplex(4), rotations(0, num, 4, 5))
    at = unit_vectors(Run().rng(5), num, 4)

    def mean(condition: float, distance: float) -> float:
        bowl = saturated(np.linspace(1.0, condition, 4), distance)
        return float(radial(bowl.move(at, looks), at).mean())

    return {
        "near": _curve(conditions, lambda condition: mean(condition, 10.0)),
        "far": _curve(conditions, lambda condition: mean(condition, FAR)),
    }


def excursions() -> Curves:
    """The root mean square distance from a minimum in R⁴ over the steps (G2)."""
    num_steps, num_free, num_held = 1000, 2000, 100
    start = np.tile(0.6 * unit_vectors(Run().rng(20), num_held, 4), (2, 1))

    def radius(step: int) -> Array:  # the first half flat, the second decayed
        return np.repeat([[1.0], [DECAY(step)]], num_held, axis=0)

    bowl = saturated(np.full(4, 2.0), 1.0)
    positions = walk(Run(), 2, bowl, start, num_steps, radius, copies=2)
    squares = np.array([(at**2).sum(axis=1).reshape(2, -1).mean(axis=1) for at in positions])
    time = np.arange(1.0, num_steps + 1)
    return {
        "free": Curve(time, np.sqrt(mean_square(Run(), 2, num_free, 4, num_steps))),
        "flat": Curve(time, np.sqrt(squares[:, 0])),
        "decayed": Curve(time, np.sqrt(squares[:, 1])),
    }


def amplitudes() -> Curves:
    """The stationary mean distance from a minimum over the dimension (G4)."""
    dims = np.array([2.0, 3, 4, 6, 8])

    def simulated(dim: float) -> float:
        start = 0.6 * unit_vectors(Run().rng(4, int(dim)), 100, int(dim))
        return _amplitudes(Run(), saturated(np.full(int(dim), 2.0), 10.0), start, 300, 60)[0]

    return {
        "simulated": _curve(dims, simulated),
        "closed form": _curve(np.arange(2.0, 9), lambda dim: 1 / (2 * best_axis_overlap(int(dim)))),
    }


# -- H, I ---------------------------------------------------------------------------------------


def violation() -> Curve:
    """KL of the plan's column sums from their target over the penalty λ (H5)."""

    def divergence(penalty: float) -> float:
        share = _weights(_instance(Run()), penalty).sum(axis=0)
        return float((share * np.log(len(share) * share)).sum())

    return _curve(np.geomspace(1e-2, 1e2, 10), divergence)


def ghost_steps() -> Curves:
    """The step of a constant row over the penalty λ (H7)."""
    penalties = np.geomspace(1e-3, 1e3, 25)
    instances = {f"instance {seed}": _ghost_costs(Run(seed), 0.37) for seed in range(3)}
    instances["all rows constant"] = np.full((4, 3), 0.37)

    def curve(costs: Array) -> Curve:
        return _curve(penalties, lambda penalty: _ghost(costs, penalty)[2])

    return {name: curve(costs) for name, costs in instances.items()}


def ghost_means() -> Curves:
    """The norm of a unit ghost step's mean over n rotations (H8)."""
    counts = np.geomspace(10, 10_000, 10).round().astype(int)
    drawn = rotations(0, 100 * int(counts[-1]), 2, 8)
    uniform = np.arctan2(drawn[:, 1, 0], drawn[:, 0, 0]).reshape(100, -1)
    # Turning some angles around in proportion to their cosine gives density 1 + ⅔ cos ϑ.
    keep = Run().rng(8).uniform(size=uniform.shape) < (1 + 0.5 * np.cos(uniform)) / 1.5
    laws = {"uniform": uniform, "biased": np.where(keep, uniform, uniform + math.pi)}
    norms = {n: np.sqrt((_mean_norms(a, counts) ** 2).mean(axis=0)) for n, a in laws.items()}
    return {name: Curve(counts.astype(np.float64), norm) for name, norm in norms.items()}


def flat_pairs() -> tuple[Curves, Curves]:
    """Shares of flat pairs over the probe radius in bins, measured and by their laws (I8)."""

    def measured(radii: Array, centred: bool) -> Curve:
        def share(radius: float) -> float:
            return _flat_fraction(Run(), radius * BIN, centred, lambda p: quantize(p, BIN))

        return _curve(radii, share)

    radii = np.geomspace(1e-5, 1.0, 400)
    found = {
        "anywhere": measured(np.geomspace(3e-5, 3e-3, 6), centred=False),
        "bin centres": measured(np.geomspace(0.11, 0.2, 6), centred=True),
    }
    laws = {
        "anywhere": _curve(radii, flat_anywhere),
        "bin centres": _curve(radii, flat_at_centres),
    }
    return found, laws
