import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from hardstep.baselines import MeZo
from hardstep.errors import ConfigError
from hardstep.optim import PolyStep
from hardstep.seeds import derive, generator


def test_a_derived_seed_is_the_same_on_every_machine_and_version():
    assert derive(0, "rotation", 7) == 8020531212813629111


def test_derived_seeds_differ_by_seed_purpose_and_index():
    paths = [
        (seed, purpose, *indices)
        for seed in (0, 1, -1, 12)
        for purpose in ("rotation", "probe jitter", "step jitter")
        for indices in ((), (0,), (1,), (12,), (0, 1), (1, 0), (1, 2))
    ]
    assert len({derive(*path) for path in paths}) == len(paths)


def test_derived_seeds_fit_a_torch_generator():
    values = [derive(seed, "range") for seed in range(200)]
    assert all(0 <= value < 2**63 for value in values)
    assert max(values) > 2**62


def test_generators_of_the_same_path_draw_the_same_numbers_and_others_do_not():
    first = torch.rand(4, generator=generator(3, "noise", 5))
    assert torch.equal(first, torch.rand(4, generator=generator(3, "noise", 5)))
    assert not torch.equal(first, torch.rand(4, generator=generator(3, "noise", 6)))
    assert not torch.equal(first, torch.rand(4, generator=generator(4, "noise", 5)))


def test_making_and_using_a_generator_leaves_the_global_ones_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    torch.rand(10, generator=generator(0, "noise"))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002
    assert random.getstate() == python_state


@pytest.mark.parametrize("seed", ["a", None, 1.5])
@pytest.mark.parametrize("method", [PolyStep, MeZo])
def test_a_seed_that_is_no_whole_number_is_refused(method, seed):
    with pytest.raises(ConfigError, match=f"seed must be a whole number, got {seed!r}"):
        method({"x": torch.zeros(3)}, seed=seed)


@pytest.mark.slow
def test_the_first_use_in_a_process_leaves_the_generator_of_random_as_found():
    """One of rich's modules draws from it while it is imported."""
    lines = (
        "import random, torch; found = random.getstate(); import hardstep",
        "hardstep.PolyStep({'x': torch.zeros(3)}); assert random.getstate() == found",
        "import hardstep.training; assert random.getstate() == found",
    )
    subprocess.run([sys.executable, "-c", "; ".join(lines)], check=True, timeout=120)
