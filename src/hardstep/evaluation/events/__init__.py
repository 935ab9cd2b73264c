"""Events: changes as lists of single numbers that differ, through convolutions and time.

A threshold, a sign, a rounding or a maximum absorbs most of what reaches it. Behind one, few
numbers differ from the base, and a convolution or a product only adds the rows of weights of these
few. A kernel takes one candidate and one example at a time through *stages*:

    layouts      where the numbers of an example stand
    program      slots (changed values that stages hand on) and stages
    planner      follows a slice node by node, and says which stage computes what
    linear       ... convolutions, products, sums, batch norm
    windows      ... maxima over windows
    maps         targets of convolutions and windows, as lists
    groups       element-wise operations between them, as one stage
    stages       the stages that are the same for every network
    writer       what they are written with
    kernel       machine code and the numbers of a step
    plan         puts these together

Nothing here is for users; `blocks` is what calls it.
"""

from hardstep.evaluation.events.kernel import Code, EventKernel, Tables, count_work, write_code
from hardstep.evaluation.events.plan import plan_events
from hardstep.evaluation.events.program import Program

__all__ = ["Code", "EventKernel", "Program", "Tables", "count_work", "plan_events", "write_code"]
