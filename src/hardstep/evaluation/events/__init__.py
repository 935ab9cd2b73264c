"""Events: changes as lists of single numbers that differ, through convolutions and time.

A threshold, a sign, a rounding or a maximum absorbs most of what reaches it. Behind one, few
numbers differ from the base, and a convolution or a product only adds the rows of weights of these
few. A kernel takes one candidate and one example at a time through *stages*:

    layouts      where the numbers of an example stand
    program      slots (changed values that stages hand on) and stages
    planner      what is known while a slice is followed
    plan         follows it node by node; what a node becomes its entry in `ops` says, by
    entries        changed filters, the first values that change
    elementwise    operations on single numbers, and views
    linear         lists of single weights
    batches        normalization by the statistics of a batch
    moves          numbers that go elsewhere, another layout
    shares         softmax of an example's numbers
    zeros          sums whose terms all vanish
    maps         targets of convolutions and windows, as lists
    groups       element-wise operations between two of these, as one stage
    stages       the stages that are the same for every network
    linear_stages  ... those of linear maps
    planes         ... convolutions of a channel of which many pixels changed
    batch_stages   ... those of statistics over a batch
    filters        the stage where a changed filter meets the pictures
    writer       what they are written with; joint: for several candidates at once
    code         a program as LLVM assembly, and rooms in memory for what it changes
    loops        its loops over candidates and examples
    tables       the record's values as kernels read them
    responses    what changed filters add to their channels
    kernel       a program with the numbers of a step

Nothing here is for users; `events_tier` is what calls it.
"""

from hardstep.evaluation.events.code import Code, write_code
from hardstep.evaluation.events.kernel import EventKernel, Found, OpenTile
from hardstep.evaluation.events.plan import plan_events
from hardstep.evaluation.events.program import Program
from hardstep.evaluation.events.tables import Tables

__all__ = [
    "Code",
    "EventKernel",
    "Found",
    "OpenTile",
    "Program",
    "Tables",
    "plan_events",
    "write_code",
]
