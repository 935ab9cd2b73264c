import pytest
import torch
from scipy.stats import rankdata

from hardstep.baselines import CmaEs, OpenAiEs, minimize
from hardstep.baselines.openai_es import center_ranks
from hardstep.errors import CapacityError, ConfigError


def sphere(vectors):
    return (vectors**2).sum(dim=1)


def rosenbrock(vectors):
    x, following = vectors[:, :-1], vectors[:, 1:]
    return (100 * (following - x**2) ** 2 + (1 - x) ** 2).sum(dim=1)


def test_ranks_are_centerd_and_ties_share_theirs():
    losses = torch.tensor([3.0, 1.0, 2.0, 2.0, 9.0])
    expected = (rankdata(losses.numpy()) - 1) / 4 - 0.5
    assert center_ranks(losses).numpy() == pytest.approx(expected)
    assert center_ranks(torch.ones(6)).tolist() == [0.0] * 6


def test_openai_es_moves_by_the_published_formula():
    """The first step of Adam has the length of its rate along the sign of the gradient."""
    es = OpenAiEs(torch.zeros(5), sigma=0.2, learning_rate=0.03, population=8, seed=3)
    vectors = es.ask()
    noise = vectors / 0.2
    assert torch.equal(noise[:4], -noise[4:])
    losses = sphere(vectors + torch.arange(5.0))
    ranks = torch.from_numpy((rankdata(losses.numpy()) - 1) / 7 - 0.5).float()
    gradient = (ranks[:, None] * noise).sum(0) / (8 * 0.2)
    es.tell(losses)
    assert torch.allclose(es.center, -0.03 * gradient.sign(), atol=1e-5)


def test_openai_es_reaches_the_minimum_of_the_sphere():
    es = OpenAiEs(torch.full((20,), 2.0), sigma=0.05, learning_rate=0.05, population=50)
    best = minimize(es, sphere, 40_000)
    assert best.loss < 0.2
    assert float(sphere(es.center[None])) < 0.05
    assert best.evaluations == 40_000


@pytest.mark.parametrize("function", [sphere, rosenbrock])
def test_cma_es_reaches_the_minimum(function):
    best = minimize(CmaEs(torch.zeros(5, dtype=torch.float64) + 0.5, 0.3), function, 6000)
    assert best.loss < 1e-8
    assert float(function(best.vector[None])) == pytest.approx(best.loss)


def test_cma_es_is_separable_in_many_dimensions_and_refuses_what_it_cannot_hold():
    assert CmaEs(torch.zeros(1001)).separable
    with pytest.raises(CapacityError, match="at most 1,000,000 dimensions, got 1,000,001"):
        CmaEs(torch.zeros(1_000_001))


def test_a_seed_fixes_the_draws():
    first, again, other = (OpenAiEs(torch.zeros(9), seed=seed).ask() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (OpenAiEs, {"population": 7}, "population must be even, .* got 7; use 8"),
        (OpenAiEs, {"population": 0}, "population must be a whole number >= 2, got 0"),
        (OpenAiEs, {"population": 32.0}, "population must be a whole number >= 2, got 32.0"),
        (OpenAiEs, {"population": "a"}, "population must be a whole number >= 2, got 'a'"),
        (OpenAiEs, {"sigma": 0.0}, "sigma must be a number > 0 and finite, got 0.0"),
        (OpenAiEs, {"sigma": "x"}, "sigma must be a number > 0 and finite, got 'x'"),
        (OpenAiEs, {"sigma": True}, "sigma must be a number > 0 and finite, got True"),
        (
            OpenAiEs,
            {"learning_rate": "x"},
            "learning_rate must be a number > 0 and finite, got 'x'",
        ),
        (OpenAiEs, {"decay": "x"}, "decay must be a number >= 0 and finite, got 'x'"),
        (CmaEs, {"sigma": 0.0}, "CmaEs: sigma must be"),
        (CmaEs, {"population": 3}, "CmaEs: population must be a whole number >= 4, got 3"),
    ],
)
def test_bad_settings_are_refused(method, changes, message):
    with pytest.raises(ConfigError, match=message):
        method(torch.zeros(5), **changes)
