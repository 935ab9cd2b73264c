"""Compiled kernels: the changed part of a forward pass as one loop over examples and candidates.

The stages in their order, and the files that hold them:

    expressions            what a kernel computes, over lanes (one example per lane)
    graph                  ... and how expressions are made, each of them once
    tables                 what the tables hold that it reads
    translate              a recorded forward pass as expressions, node by node, as `ops` says
    stacks                 ... values stacked along a new axis, such as time
    states                 ... learned first states: rows given to all examples
    parts                  ... one unit of an axis, or some of them
    updates                ... sums with a product
    sums                   ... reductions, and sums over examples, which end a kernel
    kernel_plan            what a plan consists of
    plan                   whether a block of parameters can be fused, and how its change enters
    schedule               which expression is computed in which loop, and where it need not be
    emit                   the kernel as LLVM assembly: loops over examples and candidates
    emit_loops             ... loops over the axes of layers
    emit_changes           ... lists of what changes, and the products that read them
    emit_draft             ... what is written so far: names, places, functions
    outline                ... what stands in many places, as functions
    emit_expressions       ... the instructions of one expression
    emit_reductions        ... sums, extremes and choices along an axis
    emit_products          ... matrix products
    emit_functions         ... exp, log, tanh
    emit_layouts           kernels that turn tables, and look which units vary
    emit_vectors           ... single instructions on vectors of lanes
    pack                   kernels that spend no lane on an example that does not change
    compile                text to machine code, kept in memory and on disk, and called
    layouts                a recorded value as a table; the inputs that vary
    record_tables          the tables of a step, shared by its blocks
    bind                   a kernel with the numbers of a step: tiles, sums

The first step of a model goes through all of them, later steps through the last four only.
Nothing here is for users; `tiers` is what calls it.
"""

from hardstep.evaluation.fused.bind import Kernel
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.kernel_plan import KernelPlan
from hardstep.evaluation.fused.plan import plan_kernel
from hardstep.evaluation.fused.record_tables import Tables
from hardstep.evaluation.fused.schedule import count_bytes, count_operations

__all__ = [
    "Kernel",
    "KernelPlan",
    "Tables",
    "Unfusable",
    "count_bytes",
    "count_operations",
    "plan_kernel",
]
