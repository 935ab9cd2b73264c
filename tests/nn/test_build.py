import pytest
import torch

import hardstep.nn
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
