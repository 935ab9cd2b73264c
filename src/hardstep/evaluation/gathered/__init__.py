"""Changed examples of many candidates in one batch; not for users.

places      where the examples stand in a value
scene       the same for all values of a record, and how each node treats examples
lifts       base values with examples in front, and which examples differ
reader      what an operation is given
shapes      rules: element-wise operations, views, transposes
along       rules: operations along dimensions of one example
products    rules: matrix products, shared by all candidates
lookups     rules: rows of a table, gather
closings    rules: sums over examples, losses
outer       one changed unit behind products
deferred    products that are left undone
rows        the tokens that a hard choice alters
passes      what stands between products, as one compiled pass over rows
pass_runs   where a pass reads and writes
row_code    its code
plan        what the operations of a slice read and make
pieces      a few candidates of a tile at a time
runner      operations one after the other, or as one pass
gathering   a tile of candidates on its way to the loss
"""

from hardstep.evaluation.gathered.gathering import Gathering
from hardstep.evaluation.gathered.lifts import Lifts
from hardstep.evaluation.gathered.passes import Builder, Passes, RowRule
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.plan import Plan
from hardstep.evaluation.gathered.scene import ApartRule, Scene

__all__ = [
    "ApartRule", "Builder", "Gathering", "Lifts", "Mixed", "Passes", "Plan", "RowRule", "Scene",
]  # fmt: skip
