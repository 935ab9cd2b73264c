"""What is known about single aten operators: one entry each, in the file of its family.

    operator      what an entry may say
    registry      all entries
    elementwise   what all operators have in common that act number by number
    formulas      functions that they are written with
    arithmetic    these operators: sums, comparisons, logic, copies
    activations   and these: relu, tanh, gelu
    views         the same numbers under other names
    parts         parts of an axis
    moves         numbers that go elsewhere
    products      matrix products
    convolutions  convolutions
    sums          sums and means
    extremes      maxima, minima, their places
    softmax       softmax and its logarithm
    reductions    other operators along a dimension
    pooling       maxima and means over windows
    norms         batch, layer and group norm
    indexing      gather, rows of a table
    losses        losses that are one operator
    shapes        operators that read no values

The registry stands above the tiers and is handed down to them. Nothing here is for users.
"""

from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.ops.registry import REGISTRY, count_work

__all__ = ["REGISTRY", "Operator", "count_work"]
