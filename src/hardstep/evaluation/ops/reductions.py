"""Other operators along a dimension, which no kernel knows."""

from hardstep.evaluation.gathered.along import call_along
from hardstep.evaluation.incremental.along import carry_beside
from hardstep.evaluation.incremental.examples import along_dims, run_apart
from hardstep.evaluation.ops.operator import Operator

_NAMES = """
    glu var std any all prod cumsum cumprod logsumexp sort topk norm linalg_vector_norm std_mean
    var_mean argsort count_nonzero aminmax
"""
OPERATORS = tuple(
    Operator(name, column=carry_beside, examples=run_apart(along_dims()), apart=call_along)
    for name in _NAMES.split()
)
