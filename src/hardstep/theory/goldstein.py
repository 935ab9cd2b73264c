"""Goldstein: the smoothed gradient lies in the Goldstein set, and how far that set must reach."""

import math
from itertools import product

import numpy as np

from hardstep import seeds
from hardstep.optim.quantities import joint_radius, outer_reach
from hardstep.theory.numerics import Array, Function, midpoints, quadrature
from hardstep.theory.radii import RadiusLaw, tail_cdf
from hardstep.theory.spheres import ball_density, equator_density, half_mean
from hardstep.theory.suite import Evidence, Setup, check

JOINT = RadiusLaw(1.0, num_probes=3, eta_max=0.5)  # the law whose percentile the paper prints


def _margin(gradient: float, kink: float, radius: float) -> float:
    """How far inside {βn, 0 ≤ β ≤ top} a gradient along n lies; negative outside.

    That is the Goldstein set at 0 of a hinge with its kink at a distance: only a ball that
    reaches the kink sees the slope.
    """
    top = 1.0 if radius >= kink else 0.0
    return min(gradient, top - gradient)


def _hinge_gradient(law: RadiusLaw, dim: int, kink: float) -> float:
    """(d/δ) E[φ(u)û_1] over probes u: the gradient of the smoothed hinge that a step follows."""
    radii, weights = law.rule(kink)
    cosine, measure = quadrature(np.minimum(kink / radii, 1.0), np.ones_like(radii), 200)
    density = equator_density(dim) * (1 - cosine**2) ** ((dim - 3) / 2)
    seen = (measure * (radii[:, None] * cosine - kink) * cosine * density).sum(axis=1)
    return dim / law.mean * float(weights @ seen)


def _support_excess(setup: Setup, law: RadiusLaw, radius: float) -> float:
    """How far ∇φ_δ sticks out of the Goldstein set of φ = |z_1| + ½|z_2|, over random z.

    A quadrant contributes its gradient (±1, ±½) if a ball around z of this radius meets it.
    """
    angle = midpoints(0.0, 2 * math.pi, 64)
    normals = np.stack([np.cos(angle), np.sin(angle)])
    signs = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    slopes = np.array([1.0, 0.5])
    worst = -math.inf
    for z in setup.rng(1).uniform(-1.5, 1.5, (200, 2)) * law.outer:
        gradient = slopes * np.array([2 * tail_cdf(law, 2, float(c)) - 1 for c in z])
        met = np.linalg.norm(np.clip(-signs * z, 0, None), axis=1) <= radius
        support = ((signs[met] * slopes) @ normals).max(axis=0)
        worst = max(worst, float((gradient @ normals - support).max()))
    return worst


@check("F1", "goldstein", "Q")
def inclusion(setup: Setup) -> Evidence:
    """The smoothed gradient is in the Goldstein set of radius δ_out."""
    law = RadiusLaw(1.0, eta_max=0.3)
    kink = 0.5 * law.outer
    gradients = {f"gradient, d = {d}": _hinge_gradient(law, d, kink) for d in (2, 3, 4)}
    expected = {f"gradient, d = {d}": 1 - tail_cdf(law, d, kink) for d in (2, 3, 4)}

    def at(radius: float) -> dict[str, float]:
        margin = _margin(gradients["gradient, d = 2"], kink, radius)
        return gradients | {"margin": margin, "excess": _support_excess(setup, law, radius)}

    return Evidence(
        at(law.outer), expected, 1e-8, {"radius 0.45 δ_out": at(0.45 * law.outer)},
        also=lambda v: v["margin"] >= 0.07 and v["excess"] <= 1e-12,
        note="The paper prints a margin of at least 0.07 on an instance it does not state.",
    )  # fmt: skip


def _percentile(law: RadiusLaw, num_blocks: int, share: float, cells: int = 4096) -> float:
    """A quantile of ‖u‖/(√P δ_out), from the P-fold convolution of the law of (ρ/δ_out)²."""
    squares = midpoints(0.0, 1.0, cells)
    radii = law.outer * np.sqrt(squares)
    mass = law.density(radii) * law.outer / (2 * np.sqrt(squares))
    length = num_blocks * cells
    total = np.fft.irfft(np.fft.rfft(mass / mass.sum(), length) ** num_blocks, length)
    sums = (np.arange(length) + num_blocks / 2) / cells  # of P midpoints
    return math.sqrt(float(np.interp(share, np.cumsum(total), sums + 0.5 / cells)) / num_blocks)


def _joint_norms(setup: Setup, num: int, num_blocks: int) -> Array:
    """Norms of joint displacements, blocks being independent."""
    generator = seeds.generator(setup.seed, "theory joint support", num, num_blocks)
    norms = []
    for _ in range(10):  # in parts, for memory
        radii = JOINT.draw(num // 10 * num_blocks, generator).reshape(-1, num_blocks)
        norms.append(np.sqrt((radii**2).sum(axis=1)))
    return np.concatenate(norms)


@check("F2", "goldstein", "X")
def joint_support(setup: Setup) -> Evidence:
    """Joint displacements stay within √P δ_out, and mostly far inside."""
    norms = {blocks: _joint_norms(setup, 20_000, blocks) for blocks in (1, 4, 16)}
    norms[64] = _joint_norms(setup, 200_000, 64)

    def in_units(reach: float) -> dict[str, float]:
        shares = {blocks: norms[blocks] / joint_radius(blocks, reach) for blocks in norms}
        return {
            "percentile": float(np.quantile(shares[64], 0.999)),
            "largest": max(float(share.max()) for share in shares.values()),
        }

    expected = {"percentile": _percentile(JOINT, 64, 0.999)}
    return Evidence(
        in_units(outer_reach(1.0, 3, 0.5)), expected, 1e-3,
        {"√P δ in place of √P δ_out": in_units(JOINT.mean)}, also=lambda v: v["largest"] <= 1.0,
        paper={"percentile": 0.568}, paper_tol=1e-3,
    )  # fmt: skip


def _log_corner(threshold: float, num_blocks: int = 4, cells: int = 6000) -> dict[str, float]:
    """log10 of the probabilities that every block, and that the norm, is beyond a share."""
    edge = threshold * JOINT.outer
    block = JOINT.expect(lambda radii: np.asarray(radii > edge, dtype=np.float64), edge)
    # The norm is large where the deficits 1 − (ρ/δ_out)² of the blocks add up to little.
    room = num_blocks * (1 - threshold**2)
    deficits = midpoints(0.0, room, cells)
    ratio = np.sqrt(1 - deficits)
    one = JOINT.density(JOINT.outer * ratio) * JOINT.outer / (2 * ratio) * room / cells
    total = one
    for _ in range(num_blocks - 1):
        total = np.convolve(total, one)[:cells]
    last = cells - num_blocks // 2  # its sum of midpoints is the room itself
    norm = float(total[:last].sum() + total[last] / 2)
    floor = 1e-300  # keeps an impossible event finite
    return {
        "product": num_blocks * math.log10(max(block, floor)),
        "norm": math.log10(max(norm, floor)),
    }


@check("F3", "goldstein", "Q")
def corner(_: Setup) -> Evidence:
    """The corner of the joint support has positive probability."""
    expected = {"product": -12.854, "norm": -11.18}
    return Evidence(
        _log_corner(0.95), expected, 0.02,
        {"threshold 1": _log_corner(1.0), "threshold 0.94": _log_corner(0.94)},
        paper={"product": -12.9}, paper_tol=0.05,
        note="The printed -12.9 is the probability that all four blocks are beyond 0.95 δ_out, a "
        "lower bound for the norm event the paper names, whose logarithm is -11.18.",
    )  # fmt: skip


def _witness(
    setup: Setup, num_blocks: int, share: float, radius_share: float
) -> tuple[float, float, float]:
    """Slope along n̂ and across of the hinge averaged over ±u*, and the margin at a radius."""
    reach, rng = 1.0, setup.rng(num_blocks)
    blocks = rng.standard_normal((num_blocks, 2))
    corner = (reach * blocks / np.linalg.norm(blocks, axis=1, keepdims=True)).ravel()
    normal = corner / np.linalg.norm(corner)
    kink = share * joint_radius(num_blocks, reach)
    step = (joint_radius(num_blocks, reach) - kink) / 2  # keeps clear of the kink

    def averaged(at: Array) -> float:
        return sum(max(0.0, float(normal @ (at + u)) - kink) for u in (corner, -corner)) / 2

    def along(direction: Array) -> float:
        return (averaged(step * direction) - averaged(-step * direction)) / (2 * step)

    sideways = np.zeros_like(normal)
    sideways[:2] = -normal[1], normal[0]  # orthogonal to n̂, within the first block
    slope = along(normal)
    return slope, along(sideways), _margin(slope, kink, radius_share * kink)


def _witnesses(setup: Setup, radius_share: float) -> dict[str, float]:
    """The worst over numbers of blocks and positions of the kink."""
    cases = product((2, 9, 64), (0.5, 0.9, 0.999))
    found = np.array([_witness(setup, blocks, share, radius_share) for blocks, share in cases])
    worst = int(np.argmax(np.abs(found[:, 0] - 0.5)))
    return {
        "gradient": float(found[worst, 0]),
        "across": float(np.abs(found[:, 1]).max()),
        "margin": float(found[:, 2].max()),
    }


@check("F4", "goldstein", "X")
def sharpness(setup: Setup) -> Evidence:
    """A two-point measure defeats every Goldstein radius below √P δ_out."""
    expected = {"gradient": 0.5, "across": 0.0, "margin": -0.5}
    return Evidence(
        _witnesses(setup, 1 - 1e-9), expected, 1e-10,
        {"a radius that reaches the kink": _witnesses(setup, 1.0)},
    )  # fmt: skip


def _inclusions(basis: Array) -> dict[str, float]:
    """Distances of the gradient of φ(t) = L(tΠ), L = x + y, smoothed over ±1, from both forms."""
    ambient = np.ones(2)
    values = {t: np.mean([ambient @ (basis * (t + u)) for u in (-1.0, 1.0)]) for t in (-1.0, 1.0)}
    slope = float(values[1.0] - values[-1.0]) / 2
    return {
        "ambient": float(np.linalg.norm(slope * basis - ambient)),
        "projected": abs(slope - float(basis @ ambient)),
    }


@check("F5", "goldstein", "X")
def ambient_form(_: Setup) -> Evidence:
    """The inclusion holds for the projected set, not for the ambient one."""
    expected = {"ambient": 1.0, "projected": 0.0}
    return Evidence(
        _inclusions(np.array([1.0, 0.0])), expected, 1e-12,
        {"a subspace that holds the gradient": _inclusions(np.ones(2) / math.sqrt(2))},
    )  # fmt: skip


def _largest_slopes(dim: int, jump: float, slope: Function, deltas: Array) -> Array:
    """sup‖∇L_δ‖·δ for a loss of x_1 with a jump at 0 and the given slope elsewhere."""
    unit = RadiusLaw(2.0, eta_max=0.3)  # δ = 1
    radii, weights = unit.rule()

    def kernel(t: Array) -> Array:
        return np.asarray(ball_density(t[..., None] / radii, dim) @ weights)

    x = np.linspace(-2.0, 2.0, 161)
    split = np.clip(x, -unit.outer, unit.outer)
    ends = np.full_like(x, unit.outer)
    pieces = [quadrature(-ends, split, 60), quadrature(split, ends, 60)]
    nodes, measure = (np.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True))
    measure = measure * kernel(nodes)
    found = [
        np.abs(jump * kernel(x) / delta + (measure * slope(delta * (x[:, None] - nodes))).sum(1))
        for delta in deltas
    ]
    return np.array([values.max() for values in found]) * deltas


@check("F6", "goldstein", "Q")
def jump_law(_: Setup) -> Evidence:
    """At a jump the smoothed gradient grows like 1/δ."""
    deltas = np.array([0.025, 0.0125, 0.00625])

    def bent(x: Array) -> Array:
        return np.asarray(np.where(x > 0, 1.5 * np.cos(3 * x), 0.0) - 0.6 * np.sin(2 * x))

    def facts(jump: float, plain: Function, other: Function) -> dict[str, float]:
        found = _largest_slopes(4, jump, other, deltas)
        constants = {
            f"constant, d = {d}": float(_largest_slopes(d, jump, plain, deltas)[0]) for d in (2, 4)
        }
        return constants | {"spread": float(found.max() / found.min() - 1)}

    expected = {f"constant, d = {d}": d * half_mean(d) for d in (2, 4)} | {"spread": 0.0}
    return Evidence(
        facts(1.0, np.zeros_like, bent), expected, 0.02,
        {"|x|, which has no jump": facts(0.0, np.sign, np.sign)},
        tols={"constant, d = 2": 1e-5, "constant, d = 4": 1e-5},
        paper={"spread": 0.013}, paper_tol=0.007,
        note="The paper's 1.3 % is over a 4x range of radii on a loss it does not state. The "
        "specification's 2 % holds in four dimensions; in two the spread is 2.2 %.",
    )  # fmt: skip
