"""Compiled kernels: the changed part of a forward pass as one loop over candidates and rows."""

from hardstep.evaluation.fused.bind import Kernel, Tables
from hardstep.evaluation.fused.cost import nbytes, operations
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.fused.plan import Plan, plan

__all__ = ["Kernel", "Plan", "Tables", "Unfusable", "nbytes", "operations", "plan"]
