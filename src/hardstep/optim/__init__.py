"""The optimizer and what it is made of; `diagnose` and `quantities` for when it does not move."""

from hardstep.optim import presets, quantities
from hardstep.optim.ask_tell import AskTell, SuccessRadius
from hardstep.optim.coverage import Condition, Coverage
from hardstep.optim.diagnosis import Diagnosis, diagnose
from hardstep.optim.minimize import MinimizeResult, minimize
from hardstep.optim.polystep import PolyStep
from hardstep.optim.report import Statistics, StepReport
from hardstep.optim.rules import (
    Absorb,
    AdaptiveProbes,
    Context,
    FullDecay,
    LeavePlateau,
    Momentum,
    PlanReuse,
    Reuse,
    Rule,
    WeightDecay,
    WeightMomentum,
)
from hardstep.optim.settings import Settings
from hardstep.optim.step import Proposal, Reach, advance, propose

__all__ = [
    "Absorb",
    "AdaptiveProbes",
    "AskTell",
    "Condition",
    "Context",
    "Coverage",
    "Diagnosis",
    "FullDecay",
    "LeavePlateau",
    "MinimizeResult",
    "Momentum",
    "PlanReuse",
    "PolyStep",
    "Proposal",
    "Reach",
    "Reuse",
    "Rule",
    "Settings",
    "Statistics",
    "StepReport",
    "SuccessRadius",
    "WeightDecay",
    "WeightMomentum",
    "advance",
    "diagnose",
    "minimize",
    "presets",
    "propose",
    "quantities",
]
