"""Lemma smooth-kernel: the probes' kernel and its score.

A probe has density p(u) = q_mix(ρ)/(σρ^(d−1)), ρ = ‖u‖, and radial score q'_mix/q_mix − (d−1)/ρ,
so the gradient of the loss averaged over probes is −E[L(u)·score·û].
"""

from itertools import pairwise

import numpy as np

from hardstep import seeds
from hardstep.geometry import probe_fractions
from hardstep.theory.numerics import Array, farthest, midpoints, quadrature
from hardstep.theory.radii import RadiusLaw, bump, bump_survival, probe_gradient
from hardstep.theory.spheres import half_mean, sphere_area
from hardstep.theory.suite import Evidence, Setup, Values, check

SINGLE = RadiusLaw(2.0, 1, 0.5)  # one annulus around r_pε = 1: ξ = 1, which no probe has
MIXTURE = RadiusLaw(1.0, 3, 0.5)
DIMS = (2, 3, 4)


def _tail_mass(law: RadiusLaw, dim: int) -> float:
    """∫ m over R^d, annulus by annulus, with m(u) = ∫_ρ^∞ q_mix(s)/(σs^(d−1)) ds."""
    area, total = sphere_area(dim), 0.0
    for center in law.centers:
        width = law.eta_max * center
        low, high = center - width, center + width
        # The first radius stands for all below the annulus, where m is constant.
        radii, weights = quadrature(low, high, 200)
        radii = np.concatenate([[low], radii])
        beyond, inner = quadrature(radii, np.full_like(radii, high), 200)
        profile = bump((beyond - center) / width) / width / (area * beyond ** (dim - 1))
        kernel = (inner * profile).sum(axis=1)
        total += area * (kernel[0] * low**dim / dim + weights @ (kernel * radii ** (dim - 1))[1:])
    return total / law.num_probes


@check("C1", "smooth-kernel", "X")
def normalizer(_: Setup) -> Evidence:
    """The tail kernel has mass δ/d, with δ = r_pε/2 for every number of probes."""
    laws = [RadiusLaw(0.7, probes, eta) for probes in (1, 2, 3, 5) for eta in (0.05, 0.5)]
    masses = [(law, dim, _tail_mass(law, dim)) for law in laws for dim in (2, 3, 4, 8)]
    fractions = (float(probe_fractions(law.num_probes).mean()) for law in laws)
    mean = {"mean fraction": farthest(fractions, 0.5)}
    right = farthest((mass / (law.length / (2 * dim)) for law, dim, mass in masses), 1.0)
    wrong = farthest((mass / (law.length / dim**2) for law, dim, mass in masses), 1.0)
    expected = {"mass over claim": 1.0, "mean fraction": 0.5}
    return Evidence(
        {"mass over claim": right} | mean, expected, 1e-10,
        {"the claim r_pε/d²": {"mass over claim": wrong} | mean}, tols={"mean fraction": 1e-15},
    )  # fmt: skip


def _score_gradient(law: RadiusLaw, dim: int, offset: float, sphere: bool = True) -> float:
    """−∫(q'_mix − (d−1)q_mix/ρ)·A_d(1 − s²/ρ²)^((d−1)/2) dρ; `sphere` keeps the second term."""
    annuli = [center * (1 + side * law.eta_max) for center in law.centers for side in (-1, 1)]
    edges = sorted({edge for edge in [*annuli, offset] if edge >= max(offset, min(annuli))})
    total = 0.0
    for low, high in pairwise(edges):
        radii, weights = quadrature(low, high)
        score = law.log_slope(radii) - sphere * (dim - 1) / radii
        seen = np.clip(1 - (offset / radii) ** 2, 0, None) ** ((dim - 1) / 2)
        total += float(weights @ (law.density(radii) * score * seen))
    return -half_mean(dim) * total


@check("C2", "smooth-kernel", "Q")
def score_identity(_: Setup) -> Evidence:
    """The score identity gives the gradient of the loss averaged over probes."""
    cases = [
        (RadiusLaw(1.0, probes, 0.5), dim, offset)
        for probes in (1, 3, 5)
        for dim in (2, 3, 4)
        for offset in (0.0, 0.1, 0.2)
    ]

    def worst(sphere: bool) -> Values:
        ratios = (_score_gradient(*case, sphere) / probe_gradient(*case) for case in cases)
        return {"score over gradient": farthest(ratios, 1.0)}

    expected = {"score over gradient": 1.0}
    return Evidence(worst(True), expected, 1e-9, {"without the sphere's share": worst(False)})


def _sample_scores(setup: Setup, law: RadiusLaw, offset: float, num: int, sphere: bool) -> Array:
    """Draws of −(L − ½)·score·û_1 in R³ for a unit step; the ½ only lowers the variance."""
    generator = seeds.generator(setup.seed, "theory score", law.num_probes, int(law.length))
    radii = law.draw(num, generator)
    cosine = setup.rng(law.num_probes, int(law.length)).uniform(-1, 1, num)  # Archimedes, d = 3
    score = law.log_slope(radii) - sphere * 2 / radii
    return np.asarray(-((radii * cosine > offset) - 0.5) * score * cosine)


@check("C2-MC", "smooth-kernel", "M")
def sampled_score(setup: Setup) -> Evidence:
    """The same identity from drawn probes in R³, on a loss that jumps."""
    num, least = (500_000, 0.02) if setup.quick else (3_000_000, 0.009)
    laws = {"single annulus": SINGLE} | {f"K = {k}": RadiusLaw(1.0, k, 0.5) for k in (1, 3, 5)}
    expected = dict.fromkeys(laws, 1.0)
    tols: dict[str, float] = {}

    def ratios(sphere: bool) -> Values:
        found = {}
        for name, law in laws.items():
            samples = _sample_scores(setup, law, 0.1, num, sphere)
            exact = probe_gradient(law, 3, 0.1)
            found[name] = float(samples.mean()) / exact
            tols.setdefault(name, max(least, 4 * float(samples.std()) / num**0.5 / exact))
        return found

    return Evidence(
        ratios(True), expected, least, {"without the sphere's share": ratios(False)}, tols=tols,
        paper=expected, paper_tol={name: max(0.009, tol) for name, tol in tols.items()},
        note="Estimate over gradient; the paper is off by 0.9 % (single) and 0.2-0.6 %.",
    )  # fmt: skip


def _disagreement(law: RadiusLaw, radii: Array, dim: int) -> Array:
    """Factors between the radial scores of the single annulus and of a law."""
    single = np.abs(SINGLE.log_slope(radii) - (dim - 1) / radii)
    other = np.abs(law.log_slope(radii) - (dim - 1) / radii)
    return np.maximum(single / other, other / single)


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    mass = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(mass, mass[-1] / 2)])


def _single_for_mixture(setup: Setup, law: RadiusLaw) -> Values:
    """What the single annulus holds of a law's probes, and how wrong its score is there."""
    low, high = SINGLE.centers[0] * 0.5, SINGLE.outer
    radii = law.draw(1_000_000, seeds.generator(setup.seed, "theory annulus", law.num_probes))
    shared = radii[(radii > low) & (radii < high)]
    nodes, weights = quadrature(low, min(high, law.outer))
    medians = {dim: float(np.median(_disagreement(law, shared, dim))) for dim in DIMS}
    factors = {f"median factor, d = {dim}": median for dim, median in medians.items()}
    share = {"share inside": float(weights @ law.density(nodes))}
    return share | {"share inside, drawn": len(shared) / len(radii)} | factors


@check("C3", "smooth-kernel", "Q")
def single_annulus(setup: Setup) -> Evidence:
    """One annulus at full radius is the wrong kernel for three probes."""
    inside = (0.0 + 0.5 + bump_survival(-2 / 3)) / 3
    band = midpoints(SINGLE.centers[0] * 0.5, MIXTURE.outer, 200_000)
    expected = {"share inside": inside, "share inside, drawn": inside}
    for dim in DIMS:
        factors = _disagreement(MIXTURE, band, dim)
        expected[f"median factor, d = {dim}"] = _weighted_median(factors, MIXTURE.density(band))
    tols = {"share inside": 1e-6, "share inside, drawn": 0.002, "median factor, d = 2": 0.2}
    return Evidence(
        _single_for_mixture(setup, MIXTURE), expected, 0.05,
        {"the single annulus itself": _single_for_mixture(setup, SINGLE)}, tols=tols,
        paper={"share inside": 0.487, "median factor, d = 3": 5.0},
        paper_tol={"share inside": 0.002, "median factor, d = 3": 0.5},
        note="48.7 % is 48.63 % for the bump; other mollifiers give 48.1 to 49.4 %.",
    )  # fmt: skip
