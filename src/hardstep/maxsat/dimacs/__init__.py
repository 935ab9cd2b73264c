"""Files of formulas: DIMACS CNF and both WCNF dialects, plain, gzip or xz."""

from hardstep.maxsat.dimacs.reader import loads, read
from hardstep.maxsat.dimacs.writer import dumps, write

__all__ = ["dumps", "loads", "read", "write"]
