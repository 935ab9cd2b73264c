import pytest
import torch
from torch import nn

import hardstep.nn
from hardstep.errors import ConfigError
from hardstep.nn import build


def test_building_restores_the_global_generator_when_the_factory_fails():
    state = torch.get_rng_state()

    def broken():
        torch.rand(3)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        build(broken, 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_public_names_are_sorted_and_exist():
    assert hardstep.nn.__all__ == sorted(hardstep.nn.__all__)
    assert all(hasattr(hardstep.nn, name) for name in hardstep.nn.__all__)


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (nn.Linear(2, 2), r"a new module, got a module \(Linear\); put lambda: before it"),
        ("linear", "factory must be a function that returns a new module, got str"),
        (nn.Linear, r"called without arguments, got a function of \(in_features, .*write lambda:"),
        (lambda: 3, "factory must return a module, got 3"),
    ],
)
def test_what_makes_no_module_is_refused(factory, sentence):
    with pytest.raises(ConfigError, match=f"^build: .*{sentence}"):
        build(factory, 0)


@pytest.mark.parametrize("seed", ["a", 1.5, None])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ConfigError, match=f"seed must be a whole number, got {seed!r}"):
        build(lambda: nn.Linear(2, 2), seed)
