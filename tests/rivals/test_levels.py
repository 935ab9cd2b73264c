"""OpenAI-ES and CMA-ES reach what the published formulas reach, written out in numpy."""

from statistics import median

import numpy as np
import pytest
import torch
from scipy import optimize
from scipy.stats import rankdata

from hardstep.rivals import CmaEs, OpenAiEs, minimize

SEEDS = (1, 2, 3)
DIM = 8
TARGET = 1e-9


def sphere(x):
    return (x**2).sum()


FUNCTIONS = {"sphere": sphere, "rosenbrock": optimize.rosen}


def batch(function):
    return lambda vectors: torch.tensor([float(function(v)) for v in vectors.numpy()])


def reference_cma(function, start, sigma, seed, target, limit):
    """(μ/μ_w, λ)-CMA-ES of Hansen's tutorial (2016), positive weights only; evaluations spent."""
    rng, n = np.random.default_rng(seed), len(start)
    lam = 4 + int(3 * np.log(n))
    mu = lam // 2
    w = np.log((lam + 1) / 2) - np.log(np.arange(1, mu + 1))
    w /= w.sum()
    mu_eff = 1 / (w**2).sum()
    c_s, c_c = (mu_eff + 2) / (n + mu_eff + 5), (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)
    c_1 = 2 / ((n + 1.3) ** 2 + mu_eff)
    c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff))
    d_s = 1 + 2 * max(0, np.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    chi = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    mean, cov, p_s, p_c = np.array(start), np.eye(n), np.zeros(n), np.zeros(n)
    for generation in range(1, limit // lam):
        values, basis = np.linalg.eigh(cov)
        root = np.sqrt(values)
        y = (rng.standard_normal((lam, n)) * root) @ basis.T
        losses = [function(mean + sigma * row) for row in y]
        if min(losses) < target:
            return generation * lam
        best = y[np.argsort(losses)[:mu]]
        step = w @ best
        mean = mean + sigma * step
        p_s = (1 - c_s) * p_s
        p_s += np.sqrt(c_s * (2 - c_s) * mu_eff) * (basis @ ((basis.T @ step) / root))
        length = np.linalg.norm(p_s)
        rising = length / np.sqrt(1 - (1 - c_s) ** (2 * generation)) < (1.4 + 2 / (n + 1)) * chi
        p_c = (1 - c_c) * p_c + rising * np.sqrt(c_c * (2 - c_c) * mu_eff) * step
        old = (1 - c_1 - c_mu + (not rising) * c_1 * c_c * (2 - c_c)) * cov
        cov = old + c_1 * np.outer(p_c, p_c) + c_mu * (best.T * w) @ best
        sigma *= np.exp(c_s / d_s * (length / chi - 1))
    return limit


def spent_by_cma(function, start, seed, limit):
    """Evaluations until the target, in whole generations."""
    method, losses_of, spent = CmaEs(torch.tensor(start), 0.3, seed=seed), batch(function), 0
    while spent < limit:
        losses = losses_of(method.ask())
        spent += len(losses)
        if float(losses.min()) < TARGET:
            return spent
        method.tell(losses)
    return limit


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cma_es_needs_no_more_evaluations_than_the_tutorials_formulas(name):
    function, start, limit = FUNCTIONS[name], [0.4] * DIM, 12_000
    ours = [spent_by_cma(function, start, seed, limit) for seed in SEEDS]
    theirs = [reference_cma(function, start, 0.3, seed, TARGET, limit) for seed in SEEDS]
    assert max(ours) < limit
    assert 0.5 * median(theirs) < median(ours) < 1.2 * median(theirs)


def test_cma_es_ends_where_a_gradient_method_ends():
    start = torch.full((DIM,), 0.4, dtype=torch.float64)
    best = minimize(CmaEs(start, 0.3, seed=1), batch(optimize.rosen), 8000)
    found = optimize.minimize(optimize.rosen, start.numpy(), jac=optimize.rosen_der, method="BFGS")
    assert np.abs(best.vector.numpy() - found.x).max() < 1e-3


def reference_es(function, start, sigma, rate, population, seed, generations):
    """OpenAI-ES (Salimans et al. 2017) with mirrored samples, ranks and Adam; the last centre."""
    rng, theta = np.random.default_rng(seed), np.array(start)
    m = v = np.zeros(len(theta))
    for t in range(1, generations + 1):
        half = rng.standard_normal((population // 2, len(theta)))
        noise = np.concatenate([half, -half])
        losses = [function(theta + sigma * e) for e in noise]
        ranks = (rankdata(losses) - 1) / (population - 1) - 0.5
        gradient = ranks @ noise / (population * sigma)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        theta = theta - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return theta


@pytest.mark.parametrize("name", FUNCTIONS)
def test_openai_es_reaches_the_level_of_its_formulas(name):
    function, start = FUNCTIONS[name], [-0.5] * DIM
    sigma, rate, population, generations = 0.05, 0.02, 20, 400
    ours, theirs = [], []
    for seed in SEEDS:
        es = OpenAiEs(torch.tensor(start), sigma, rate, population, seed)
        minimize(es, batch(function), population * generations)
        ours.append(function(es.centre.numpy()))
        last = reference_es(function, start, sigma, rate, population, seed, generations)
        theirs.append(function(last))
    assert median(ours) < 0.2 * function(np.array(start))
    assert 1 / 3 < median(ours) / median(theirs) < 3
