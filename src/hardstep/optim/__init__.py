"""The optimizer and what it is made of."""

from hardstep.optim import presets
from hardstep.optim.ask_tell import AskTell, SuccessRadius
from hardstep.optim.coverage import Condition, Coverage, Statistics
from hardstep.optim.minimize import MinimizeResult, minimize
from hardstep.optim.polystep import PolyStep
from hardstep.optim.report import StepReport
from hardstep.optim.rules import (
    Absorb,
    AdaptiveProbes,
    Momentum,
    PlanReuse,
    Rule,
    WeightDecay,
)
from hardstep.optim.settings import Settings
from hardstep.optim.step import Proposal, Reach, advance, propose
from hardstep.optim.weight_rules import FullDecay, WeightMomentum

__all__ = [
    "Absorb",
    "AdaptiveProbes",
    "AskTell",
    "Condition",
    "Coverage",
    "FullDecay",
    "MinimizeResult",
    "Momentum",
    "PlanReuse",
    "PolyStep",
    "Proposal",
    "Reach",
    "Rule",
    "Settings",
    "Statistics",
    "StepReport",
    "SuccessRadius",
    "WeightDecay",
    "WeightMomentum",
    "advance",
    "minimize",
    "presets",
    "propose",
]
