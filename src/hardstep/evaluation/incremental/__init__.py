"""Exact incremental evaluation: probes at the cost of what they change."""

from hardstep.evaluation.tiers import Incremental

__all__ = ["Incremental"]
