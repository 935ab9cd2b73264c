"""Gymnasium's classic environments, compiled: many policies play many episodes in one call."""

from hardstep.rl.classic.rollouts import observe, play, step
from hardstep.rl.classic.specifications import CLASSIC, Specification, specify
from hardstep.rl.classic.starts import starts

__all__ = ["CLASSIC", "Specification", "observe", "play", "specify", "starts", "step"]
