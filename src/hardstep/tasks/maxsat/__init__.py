"""MAX-SAT: formulas, random and from files, and searches for good assignments."""

from hardstep.tasks.maxsat.formula import Formula
from hardstep.tasks.maxsat.generator import random_ksat
from hardstep.tasks.maxsat.local import LocalResult, local_search
from hardstep.tasks.maxsat.objective import MaxSat, Standing
from hardstep.tasks.maxsat.reading import read
from hardstep.tasks.maxsat.search import Search, SearchResult
from hardstep.tasks.maxsat.writing import write

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
