"""What baselines refuse, and what they say."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep import Batched, Cosine, RowWise
from hardstep.baselines import AdamTwin, Eggroll, InSubspace, MeZo, RandomSearch, Spsa
from hardstep.errors import ConfigError, ObjectiveError
from tests.baselines.small import batches, net, steps

BAD = [
    (RandomSearch, {"sigma": 0.0}, "RandomSearch: sigma must be a number > 0 and finite, got 0.0"),
    (RandomSearch, {"population": 0}, "population must be a whole number >= 1, got 0"),
    (RandomSearch, {"population": 2.5}, "population must be a whole number >= 1, got 2.5"),
    (Spsa, {"a": -1.0}, "Spsa: a must be"),
    (Spsa, {"c": float("nan")}, "Spsa: c must be"),
    (Spsa, {"stability": -1}, "stability must be a number >= 0"),
    (Spsa, {"alpha": "fast"}, "alpha must be a number >= 0 and finite, got 'fast'"),
    (Spsa, {"gamma": float("inf")}, "gamma must be a number >= 0 and finite, got inf"),
    (MeZo, {"learning_rate": 0}, "MeZo: learning_rate must be a number > 0"),
    (MeZo, {"mu": None}, "MeZo: mu must be a number > 0 and finite, got None"),
    (Eggroll, {"sigma": -0.1}, "Eggroll: sigma"),
    (Eggroll, {"rank": 0}, "Eggroll: rank must be a whole number >= 1, got 0"),
    (Eggroll, {"population": 7}, "population must be even, .* got 7; use 8"),
    (Eggroll, {"population": 1}, "population must be a whole number >= 2, got 1"),
    (Eggroll, {"shaping": "ranks"}, "shaping must be a function such as standardize"),
    (partial(InSubspace, method="cma"), {}, "method must be a class such as OpenAiEs"),
    (Spsa, {"subspace": RowWise}, r"subspace must be an object such as RowWise\(rank=8\), got <cl"),
    (Spsa, {"subspace": 8}, "subspace must be an object such as RowWise.*got 8"),
    (Eggroll, {"evaluator": Batched}, r"evaluator must be an object such as Batched\(\)"),
    (MeZo, {"evaluator": 3}, r"evaluator must be an object such as Batched\(\), got 3"),
    (partial(AdamTwin, twin=net()), {"betas": (0.9, 1.0)}, r"betas must be .* got \(0.9, 1.0\)"),
    (partial(AdamTwin, twin=net()), {"betas": (0.9,)}, "betas must be two numbers"),
    (partial(AdamTwin, twin=net()), {"epsilon": 0.0}, "AdamTwin: epsilon"),
    (partial(AdamTwin, twin=net()), {"learning_rate": -1e-3}, "AdamTwin: learning_rate"),
    (partial(AdamTwin, twin=torch.relu), {}, "twin must be a module, got a builtin_function"),
    (partial(AdamTwin, twin=nn.Linear(64, 10)), {}, r"'0.bias' has shape \(16,\) .* None in"),
]


@pytest.mark.parametrize(("baseline", "settings", "message"), BAD, ids=[m for _, _, m in BAD])
def test_bad_arguments_are_refused(baseline, settings, message):
    with pytest.raises(ConfigError, match=message):
        baseline(model=net(), **settings)


def test_what_is_no_model_is_refused():
    with pytest.raises(ConfigError, match="Spsa: model must be a module or a dict of named"):
        Spsa([torch.zeros(3)])
    with pytest.raises(ConfigError, match="AdamTwin: model must be a module, got a dict"):
        AdamTwin({"x": torch.zeros(3)}, net())


def test_a_rate_that_turns_negative_is_refused_when_it_does():
    optimizer = MeZo(net(), learning_rate=Cosine(0.1, -0.1, 2))
    steps(optimizer, 2)
    with pytest.raises(ConfigError, match="learning_rate must be >= 0, got -0.1 at step 2"):
        steps(optimizer, 3, first=2)


def test_shaping_must_return_one_number_per_member():
    optimizer = Eggroll(net(), population=4, shaping=lambda losses: losses[:2])
    with pytest.raises(ConfigError, match=r"must return 4 numbers, got shape \(2,\)"):
        steps(optimizer, 1)


def test_a_twin_without_a_gradient_is_refused():
    inputs, labels = batches().batch(0, 0)
    optimizer = AdamTwin(net(), net())
    with pytest.raises(ObjectiveError, match="has no gradient"):
        optimizer.step(inputs, labels, lambda o, t: cross_entropy(o.detach(), t))


def test_a_step_needs_something_to_measure():
    with pytest.raises(ConfigError, match="exactly one of"):
        Spsa(net()).step()
