"""Which environments are compiled, and how large they are."""

from typing import NamedTuple

from hardstep._checks import check_name
from hardstep.rl.classic.physics import ACROBOT, CARTPOLE, MOUNTAIN_CAR, PENDULUM


class Specification(NamedTuple):
    """The sizes of one environment."""

    code: int  # as the kernels call it
    states: int
    observations: int
    outputs: int  # of a policy: one for each action, or one torque
    horizon: int  # steps after which gymnasium ends an episode


CLASSIC = {
    "CartPole-v1": Specification(CARTPOLE, 4, 4, 2, 500),
    "Acrobot-v1": Specification(ACROBOT, 4, 6, 3, 500),
    "MountainCar-v0": Specification(MOUNTAIN_CAR, 2, 2, 3, 200),
    "Pendulum-v1": Specification(PENDULUM, 2, 3, 1, 200),
}


def specify(environment: str) -> Specification:
    """The sizes of an environment.

    Raises:
        ConfigError: It is not compiled.
    """
    check_name(environment, CLASSIC, "compiled environment")
    return CLASSIC[environment]
