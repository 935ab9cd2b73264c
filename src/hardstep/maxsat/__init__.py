"""MAX-SAT: formulas, random and from files, and searches for good assignments."""

from hardstep.maxsat.dimacs import read, write
from hardstep.maxsat.formula import Formula
from hardstep.maxsat.generate import random_ksat
from hardstep.maxsat.local import LocalResult, local_search
from hardstep.maxsat.objective import MaxSat, Standing
from hardstep.maxsat.search import Search, SearchResult

__all__ = [
    "Formula",
    "LocalResult",
    "MaxSat",
    "Search",
    "SearchResult",
    "Standing",
    "local_search",
    "random_ksat",
    "read",
    "write",
]
