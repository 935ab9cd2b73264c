"""Stable schedules: where one step near a minimum points on average."""

import math
from collections.abc import Callable

import numpy as np

from hardstep.geometry import Orthoplex
from hardstep.optim import Reach
from hardstep.solvers import RowSoftmax
from hardstep.theory.numerics import Array, Curves, quadrature, tabulate
from hardstep.theory.spheres import best_axis_overlap, unit_vectors
from hardstep.theory.steps import Stepper, directions, greedy_stepper, quadratic, radial, rotations
from hardstep.theory.suite import Evidence, Setup, check

FAR = 1e4  # a probe distance, in units of the excursion, at which curvature decides the axis


@check("G3", "stable-schedules", "M")
def isotropic_drift(setup: Setup) -> Evidence:
    """On a round bowl every step goes inward, by one mean at any distance."""
    num = 20_000
    looks = directions(Orthoplex(4), rotations(setup.seed, num, 4, 3))
    start = np.broadcast_to(unit_vectors(setup.rng(3), 1, 4), (num, 4))
    signs = setup.rng(4).choice([-1.0, 1.0], (num, 1))

    def steps(curvature: float, distance: float) -> Array:
        return greedy_stepper(np.full(4, curvature), 10.0).move(distance * start, looks)

    def facts(sign: Array | float) -> dict[str, float]:
        hard = [radial(sign * steps(2.0, distance), start) for distance in (0.5, 1.0, 2.0)]
        drifts = [float(found.mean()) for found in hard]
        soft = Stepper(quadratic(np.full(4, 2.0)), Reach(1.0, 100.0, 1), RowSoftmax())
        return {
            "drift, H = 2I": drifts[1],
            "drift, H = I": float(radial(sign * steps(1.0, 1.0), start).mean()),
            "softmax": float(radial(sign * soft.move(start, looks), start).mean()),
            "spread over distances": max(drifts) - min(drifts),
            "outward": max(float((found > 0).mean()) for found in hard),
        }

    exact = -best_axis_overlap(4)
    expected = dict.fromkeys(("drift, H = 2I", "drift, H = I", "softmax"), exact)
    expected |= {"spread over distances": 0.0, "outward": 0.0}
    return Evidence(
        facts(1.0), expected, 0.003, {"shuffled signs": facts(signs)},
        tols={"softmax": 0.005, "spread over distances": 1e-12, "outward": 0.0},
        paper={"drift, H = 2I": -0.777, "drift, H = I": -0.779}, paper_tol=0.005,
        note="The printed -0.777 (H = 2I) and -0.779 (H = I) are one constant, m_4 = 0.77912.",
    )  # fmt: skip


def _argmin_radial(curvature: Array, angle: Array) -> tuple[Array, Array]:
    """Which vertex wins at each rotation angle, and its radial part, z along (1, 1), far probes.

    The rule in the limit: curvature chooses the axis, the slope its sign.
    """
    axes = np.stack(
        [np.stack([np.cos(angle), np.sin(angle)]), np.stack([-np.sin(angle), np.cos(angle)])]
    )  # (2 axes, 2 coordinates, angles)
    z = np.full(2, math.sqrt(0.5))
    slopes = np.einsum("i,kia->ka", curvature * z, axes)
    bends = np.einsum("i,kia->ka", curvature, axes**2)
    axis = np.argmin(1e10 * bends - np.abs(slopes), axis=0)
    where = np.arange(len(angle))
    sign = -np.sign(slopes[axis, where])
    return axis + 2 * (sign > 0), sign * np.einsum("i,kia->ka", z, axes)[axis, where]


def _breaks(label: Callable[[Array], Array], low: float, high: float, cells: int) -> Array:
    """Where a piecewise constant label changes, by bisection in every cell."""
    edges = np.linspace(low, high, cells + 1)
    values = label(edges)
    left, right = edges[:-1][values[1:] != values[:-1]], edges[1:][values[1:] != values[:-1]]
    reference = label(left)
    for _ in range(60):
        middle = (left + right) / 2
        same = label(middle) == reference
        left, right = np.where(same, middle, left), np.where(same, right, middle)
    return np.concatenate([[low], (left + right) / 2, [high]])


def _exact_step(curvature: Array) -> dict[str, float]:
    """Share of outward steps and mean radial step over a quarter turn, piece by piece."""
    quarter = math.pi / 2
    edges = _breaks(lambda angle: _argmin_radial(curvature, angle)[0], 0.1, 0.1 + quarter, 97)
    nodes, weights = quadrature(edges[:-1], edges[1:], 40)
    found = _argmin_radial(curvature, nodes.ravel())[1]
    share = weights.ravel() / quarter
    return {"outward": float(share @ (found > 0)), "radial": float(share @ found)}


@check("G6", "stable-schedules", "X")
def outward_share(setup: Setup) -> Evidence:
    """In a narrow valley nearly half of the steps go outward."""
    num = 20_000
    looks = directions(Orthoplex(2), rotations(setup.seed, num, 2, 6))
    at = np.full((num, 2), math.sqrt(0.5))

    def facts(curvature: Array) -> dict[str, float]:
        found = radial(greedy_stepper(curvature, FAR).move(at, looks), at)
        drawn = {"outward, drawn": float((found > 0).mean()), "radial, drawn": float(found.mean())}
        return _exact_step(curvature) | drawn

    tilt = math.atan(0.01)
    outward = 0.5 - 2 * tilt / math.pi
    inward = -(2 / math.pi) * (2 * math.cos(math.pi / 4 - tilt) - 1)
    expected = {
        "outward": outward, "radial": inward, "outward, drawn": outward, "radial, drawn": inward,
    }  # fmt: skip
    tols = {"outward, drawn": 0.015, "radial, drawn": 0.015}
    return Evidence(
        facts(np.array([100.0, 1.0])), expected, 1e-9, {"H = I": facts(np.ones(2))}, tols=tols,
        paper={"outward": 0.49, "radial": -0.274}, paper_tol=0.005,
        note="The printed 49 % and -0.274 are Monte-Carlo estimates of 49.36 % and -0.27266.",
    )  # fmt: skip


@check("G7", "stable-schedules", "X")
def outward_step(_: Setup) -> Evidence:
    """One rotation at which the best vertex lies outward."""
    turned = np.array([[[1.0, -0.1], [0.1, 1.0]]]) / math.sqrt(1.01)  # its second column is u
    at = np.full((1, 2), 0.15 * math.sqrt(0.5))

    def facts(curvature: Array) -> dict[str, float]:
        bends = 0.5 * curvature @ turned[0] ** 2
        step = greedy_stepper(curvature, 0.5).move(at, directions(Orthoplex(2), turned))
        return {
            "its curvature": float(bends[1]),
            "its partner's": float(bends[0]),
            "radial": float(radial(step, at)[0]),
        }

    expected = {
        "its curvature": 1 / 1.01, "its partner's": 50.005 / 1.01, "radial": 0.9 / math.sqrt(2.02),
    }  # fmt: skip
    return Evidence(
        facts(np.array([100.0, 1.0])), expected, 1e-12, {"H = I": facts(np.ones(2))},
        paper={"its curvature": 0.99, "its partner's": 49.5, "radial": 0.63},
        paper_tol={"its curvature": 0.005, "its partner's": 0.05, "radial": 0.005},
    )  # fmt: skip


def _linear_step(setup: Setup, condition: float, probe: float) -> tuple[float, float, float]:
    """Misalignment of the mean step with −Hz, its coefficient over r_p/8, normalized drift."""
    curvature = np.linspace(1.0, condition, 4)
    z = np.ones(4) / np.linalg.norm(curvature)  # ‖Hz‖ = 1
    looks = directions(Orthoplex(4), rotations(setup.seed, 2000, 4, 8))
    stepper = Stepper(quadratic(curvature), Reach(1.0, probe, 1), RowSoftmax())
    step = stepper.move(np.broadcast_to(z, (2000, 4)), looks).mean(axis=0)
    slope, length = curvature * z, float(np.linalg.norm(step))
    cosine = -float(step @ slope) / length
    drift = -float(step @ z) / (length * float(np.linalg.norm(z)))
    return 1 - cosine, 8 * length / probe, drift


@check("G8", "stable-schedules", "Q")
def linear_regime(setup: Setup) -> Evidence:
    """With short probes the mean step is a multiple of −Hz."""
    conditions = (1.0, 10.0, 100.0, 1000.0)
    z = unit_vectors(setup.rng(8), 10_000, 4)

    def kantorovich(condition: float) -> float:
        curvature = np.linspace(1.0, condition, 4)
        ratio = (z**2 @ curvature) / np.linalg.norm(z * curvature, axis=1)
        bound = 2 * math.sqrt(condition) / (1 + condition)
        return min(float(ratio.min()) - bound, bound - 1 / condition)

    def facts(probes: dict[float, float]) -> dict[str, float]:
        found = {k: _linear_step(setup, k, probe) for k, probe in probes.items()}
        return {
            "misalignment": max(f[0] for f in found.values()),
            "coefficient": min(f[1] for f in found.values()),
            "slack": min(kantorovich(k) for k in conditions),
        } | {f"drift, κ = {k:g}": f[2] for k, f in found.items()}

    spectra = {f"drift, κ = {k:g}": np.linspace(1.0, k, 4) for k in conditions}
    drifts = {name: float(s.sum() / (2 * np.linalg.norm(s))) for name, s in spectra.items()}
    tols = dict.fromkeys(drifts, 1e-3) | {"coefficient": 0.002}
    short = dict.fromkeys(conditions, 0.01)
    return Evidence(
        facts(short), {"misalignment": 0.0, "coefficient": 1.0} | drifts, 1e-6,
        {"r_p = 1 at κ = 1000": facts(short | {1000.0: 1.0})},
        tols=tols, also=lambda v: v["slack"] >= -1e-12, paper={"misalignment": 0.0}, paper_tol=1e-6,
        note="The printed drifts 1.00, 0.88, 0.70 and 0.61 belong to a z the paper does not state.",
    )  # fmt: skip


@check("G11", "stable-schedules", "M")
def overlap(setup: Setup) -> Evidence:
    """The axis that curvature selects overlaps every direction."""
    num = 50_000 if setup.quick else 200_000
    shapes = {
        "diag(100, 1)": np.array([100.0, 1.0]),
        "diag(1, 1, 1, 100)": np.array([1.0, 1.0, 1.0, 100.0]),
        "even to 100": np.linspace(1.0, 100.0, 4),
    }
    looks = {d: directions(Orthoplex(d), rotations(setup.seed, num, d, 11)) for d in (2, 4)}

    def facts(confined: bool) -> dict[str, float]:
        found = {}
        for name, curvature in shapes.items():
            dim = len(curvature)
            axis = greedy_stepper(curvature, FAR).move(np.full((num, dim), 0.5), looks[dim])
            if confined:
                axis = axis * np.append(np.ones(dim - 1), 0.0)
                axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
            found[name] = float(np.abs(axis).mean(axis=0).min())
        return found

    exact = 4 / math.pi * (1 - math.cos(math.pi / 4))
    expected = {"diag(100, 1)": exact, "diag(1, 1, 1, 100)": 0.1394, "even to 100": 0.2401}
    return Evidence(
        facts(confined=False), expected, 0.004,
        {"an axis confined to a great subsphere": facts(confined=True)},
        note="The paper refers to a measurement of this constant that it does not print.",
    )  # fmt: skip


def tabulate_drifts() -> Curves:
    """The mean radial step at ‖z‖ = r_sε in R⁴ over the condition number (G3, G5)."""
    num, conditions = 50_000, np.array([1, 1.1, 1.3, 1.6, 2, 3, 5, 10, 30, 100, 300, 1000])
    looks = directions(Orthoplex(4), rotations(0, num, 4, 5))
    at = unit_vectors(Setup().rng(5), num, 4)

    def mean(condition: float, distance: float) -> float:
        bowl = greedy_stepper(np.linspace(1.0, condition, 4), distance)
        return float(radial(bowl.move(at, looks), at).mean())

    return {
        "near": tabulate(conditions, lambda condition: mean(condition, 10.0)),
        "far": tabulate(conditions, lambda condition: mean(condition, FAR)),
    }
