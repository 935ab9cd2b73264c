"""Comparing methods: records of runs, and what may be concluded from them."""

from hardstep.bench.faults import SCHEMA
from hardstep.bench.records import Loaded, append, load
from hardstep.bench.statistics import Comparison, SignFlip, compare, mean_and_spread, sign_flip

__all__ = [
    "SCHEMA",
    "Comparison",
    "Loaded",
    "SignFlip",
    "append",
    "compare",
    "load",
    "mean_and_spread",
    "sign_flip",
]
