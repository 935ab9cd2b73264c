"""The training loop and what watches it."""

from hardstep.training import checkpoints
from hardstep.training.callbacks import (
    Callback,
    CoverageLog,
    EarlyStopping,
    Goal,
    JsonlLog,
    LiveLine,
    ProgressBar,
    TensorBoard,
)
from hardstep.training.checkpoints import Checkpoint
from hardstep.training.fit import FINISHED, INTERRUPTED, FitResult, Validation, fit
from hardstep.training.run import ACCURACY, Metric, Run, Score, Trainable, mean_score

__all__ = [
    "ACCURACY",
    "Callback",
    "Checkpoint",
    "CoverageLog",
    "EarlyStopping",
    "FINISHED",
    "FitResult",
    "Goal",
    "INTERRUPTED",
    "JsonlLog",
    "LiveLine",
    "Metric",
    "ProgressBar",
    "Run",
    "Score",
    "TensorBoard",
    "Trainable",
    "Validation",
    "checkpoints",
    "fit",
    "mean_score",
]
