"""MAX-SAT: formulas, random and from files."""

from hardstep.tasks.maxsat.formula import Formula
from hardstep.tasks.maxsat.generator import random_ksat
from hardstep.tasks.maxsat.reading import read
from hardstep.tasks.maxsat.writing import write

__all__ = ["Formula", "random_ksat", "read", "write"]
