"""What gymnasium's spaces are to policies, and whether an environment keeps to its seed."""

from typing import Any

import numpy as np

from hardstep.errors import ConfigError
from hardstep.rl.gym_play import quote, silence
from hardstep.rl.spaces import Array, Continuous, Discrete, MultiDiscrete, Space

FLATTEN = "wrap it in gymnasium.wrappers.FlattenObservation in a factory"
STEPS = 3  # after a reset, that are compared


def count_observations(name: str, space: Any) -> int:
    """Numbers in an observation.

    Raises:
        ConfigError: Observations are not one row of numbers.
    """
    import gymnasium

    if not isinstance(space, gymnasium.spaces.Box):
        kind = type(space).__name__
        raise ConfigError(
            f"Gym: observations of {name} must be one row of numbers, got a {kind}; {FLATTEN}"
        )
    if len(space.shape) != 1:
        what = "images" if len(space.shape) == 3 else "arrays"
        raise ConfigError(
            f"Gym: observations of {name} must be one row of numbers, got {what} of shape "
            f"{space.shape}; {FLATTEN}"
        )
    return int(space.shape[0])


def read_actions(name: str, space: Any, squash: bool) -> Space:
    """The space of the actions.

    Raises:
        ConfigError: A policy cannot choose in such a space.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(int(num) for num in space.nvec))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiDiscrete((2,) * space.shape[0])
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype.kind == "f":
        try:
            return Continuous(tuple(space.low.tolist()), tuple(space.high.tolist()), squash)
        except ConfigError as error:
            raise ConfigError(
                f"Gym: actions of {name}: {error}; rescale them in a factory"
            ) from None
    raise ConfigError(
        f"Gym: actions of {name} must be Discrete, MultiDiscrete, MultiBinary or a Box of one row "
        f"of floats, got {' '.join(str(space).split())}; translate them in a factory with "
        "gymnasium.wrappers.TransformAction"
    )


def check_seeding(name: str, environment: Any, actions: Any) -> None:
    """Refuse an environment that does not do the same twice from one seed.

    Raises:
        ConfigError: It does not, or its `reset` or `step` raises an error.
    """
    num = getattr(environment, "num_envs", 0)
    try:
        with silence():
            actions.seed(0)
            moves = [[actions.sample() for _ in range(max(num, 1))] for _ in range(STEPS)]
            order = range(num)
            seen = [_try(environment, list(order), moves) for _ in range(2)]
            # A sub-environment must follow its own seed wherever it stands.
            turned = [row[::-1] for row in moves]
            other = _try(environment, list(order)[::-1], turned) if num > 1 else None
    except Exception as error:
        raise ConfigError(
            f"Gym: {name} raised {quote(error)} when it was tried with seed 0; correct it"
        ) from error
    if not _are_equal(*seen):
        raise ConfigError(
            f"Gym: reset of {name} ignores its seed, two resets with seed 0 differ; "
            "call super().reset(seed=seed) in it and draw from self.np_random"
        )
    if other is not None and not _are_equal(seen[0], [values[::-1] for values in other]):
        raise ConfigError(
            f"Gym: reset of {name} does not seed its {num} environments one by one, they differ "
            "when their seeds change places; give a factory of single environments"
        )


def _try(environment: Any, seeds: list[int], moves: list[list[Any]]) -> list[Array]:
    """First observations and rewards."""
    observation, _ = environment.reset(seed=seeds if seeds else 0)
    found = [np.array(observation, dtype=np.float64)]
    for move in moves:
        observation, reward, terminated, truncated, _ = environment.step(
            np.stack(move) if seeds else move[0]
        )
        found += [np.array(observation, dtype=np.float64), np.array(reward, dtype=np.float64)]
        if np.any(terminated) or np.any(truncated):
            break
    return found


def _are_equal(one: list[Array], other: list[Array]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(left, right, equal_nan=True) for left, right in zip(one, other, strict=True)
    )
