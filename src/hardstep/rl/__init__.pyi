from .agent import Agent, Rollouts, minus_return
from .compiled import Classic
from .environments import Environment, Episodes
from .export import to_c, write
from .gym import Gym
from .mujoco import MuJoCo, open_mujoco
from .policies import Policy
from .spaces import Continuous, Discrete, MultiDiscrete
from .stacks import Stack

__all__ = [
    "Agent",
    "Classic",
    "Continuous",
    "Discrete",
    "Environment",
    "Episodes",
    "Gym",
    "MuJoCo",
    "MultiDiscrete",
    "Policy",
    "Rollouts",
    "Stack",
    "minus_return",
    "open_mujoco",
    "to_c",
    "write",
]
