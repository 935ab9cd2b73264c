"""Operators that read the shape of their argument and none of its values."""

from hardstep.evaluation.gathered.shapes import call_alike
from hardstep.evaluation.ops.operator import Operator

_NAMES = """
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like
    new_zeros new_ones new_empty new_full zero
"""
_DRAWN = "bernoulli bernoulli_ uniform_ normal_"  # random numbers in place of the argument's
OPERATORS = (
    *(Operator(name, shape_only=True, apart=call_alike) for name in _NAMES.split()),
    *(Operator(name, apart=call_alike) for name in _DRAWN.split()),
)
