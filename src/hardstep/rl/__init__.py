"""Policies, and environments that play them.

The compiled environments need nothing further; gymnasium, MuJoCo and films need the extra `rl`.
"""

from hardstep.rl.agent import Agent, Rollouts, minus_return
from hardstep.rl.compiled import Classic
from hardstep.rl.environments import Environment, Episodes
from hardstep.rl.export import to_c, write
from hardstep.rl.gym import Gym
from hardstep.rl.mujoco import MuJoCo, open_mujoco
from hardstep.rl.policies import Policy, Stack
from hardstep.rl.spaces import Continuous, Discrete, MultiDiscrete

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
