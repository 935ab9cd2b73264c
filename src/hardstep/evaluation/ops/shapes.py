"""Operators that read the shape of their argument and none of its values."""

from hardstep.evaluation.ops.operator import Operator

_NAMES = """
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like
    new_zeros new_ones new_empty new_full zero
"""
OPERATORS = tuple(Operator(name, shape_only=True) for name in _NAMES.split())
