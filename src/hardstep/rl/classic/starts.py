"""The states in which gymnasium's `reset(seed=seed)` leaves the environments; needs NumPy only."""

from collections.abc import Sequence

import numpy as np

from hardstep._checks import check_count
from hardstep.rl.classic.specifications import specify
from hardstep.rl.spaces import Array

_BOUNDS = {
    "CartPole-v1": ([-0.05] * 4, [0.05] * 4),
    "Acrobot-v1": ([-0.1] * 4, [0.1] * 4),
    "MountainCar-v0": ([-0.6], [-0.4]),  # the speed is 0
    "Pendulum-v1": ([-np.pi, -1.0], [np.pi, 1.0]),
}


def starts(environment: str, seeds: Sequence[int]) -> Array:
    """The initial states (M, S) of these seeds.

    Raises:
        ConfigError: The environment is not compiled, or a seed is no whole number from 0 on.
    """
    states = np.zeros((len(seeds), specify(environment).states))
    low, high = (np.array(bound) for bound in _BOUNDS[environment])
    drawn = states[:, : len(low)]
    for row, seed in zip(drawn, seeds, strict=True):
        check_count("starts: a seed", seed, 0)
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed))))
        row[:] = generator.random(len(low))
    drawn[:] = low + (high - low) * drawn  # as Generator.uniform does
    if environment == "Acrobot-v1":
        states = states.astype(np.float32).astype(np.float64)
    return states
