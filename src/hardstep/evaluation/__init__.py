"""Losses of candidates: objectives, evaluators and the candidates themselves."""

from hardstep.evaluation.batched import Batched
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Explanation
from hardstep.evaluation.objectives import (
    ClosureObjective,
    Evaluator,
    FunctionObjective,
    ModelObjective,
    Objective,
    own_evaluator,
)
from hardstep.evaluation.onebyone import OneByOne
from hardstep.evaluation.problem import LossFunction, Problem, call_model
from hardstep.evaluation.sandbox import isolate
from hardstep.evaluation.step_arguments import check_loss_fn, make_objective
from hardstep.evaluation.tiers import Incremental

__all__ = [
    "Batched",
    "Candidates",
    "ClosureObjective",
    "Evaluator",
    "Explanation",
    "FunctionObjective",
    "Incremental",
    "LossFunction",
    "ModelObjective",
    "Objective",
    "OneByOne",
    "Problem",
    "Span",
    "call_model",
    "check_loss_fn",
    "isolate",
    "make_objective",
    "own_evaluator",
]
