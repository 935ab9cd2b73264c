"""Stateless randomness: every draw comes from a generator made for it.

A generator is derived from (seed, purpose, indices…), used for one draw covering all
particles, and thrown away. So a result depends on nothing but the seed: not on chunking, the
number of processes, or whether the run was interrupted. The global generators are never used.
"""

import hashlib
import operator

import torch

from hardstep._checks import show
from hardstep.errors import ConfigError


def check_seed(seed: object) -> int:
    """A seed as the user gave it; refuse what is no whole number."""
    try:
        return operator.index(seed)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(f"seed must be a whole number, got {show(seed)}") from error


def derive(seed: int, purpose: str, *indices: int) -> int:
    """A 63-bit seed that is a function of its arguments only."""
    text = ":".join([str(check_seed(seed)), purpose, *(str(int(index)) for index in indices)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """A CPU generator for one draw; values are moved to the device after drawing."""
    return torch.Generator(device="cpu").manual_seed(derive(seed, purpose, *indices))
