"""Comparing methods: suites of runs, their records, and what may be concluded from them.

suite    -> Job       what to run: task, method, options, budget, seed
runs     -> Record    a run's line of JSON
summary  -> Row       one method over its seeds
         -> Table     methods side by side; `report` writes it as text, Markdown and HTML
"""

from hardstep.bench.records import SCHEMA, Loaded, append, load
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
