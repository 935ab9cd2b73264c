"""Train networks and programs whose loss jumps, with forward passes only.

    opt = hardstep.PolyStep(model, subspace=hardstep.RowWise(rank=4), seed=0)
    for x, y in loader:
        loss = opt.step(x, y, loss_fn)

Names are loaded on first use, so `import hardstep` and `hardstep --help` do not wait for torch.
"""

import random as _random
from importlib import import_module
from typing import TYPE_CHECKING, Any

_found = _random.getstate()
import_module("rich.style")  # draws from this generator, which is the caller's, when it is imported
_random.setstate(_found)

__version__ = "0.1.0"

_HOME = {
    "hardstep.errors": (
        "CapacityError",
        "CheckpointError",
        "ConfigError",
        "DataError",
        "HardstepError",
        "NonFiniteLossError",
        "ObjectiveError",
    ),
    "hardstep.evaluation": ("Batched", "Candidates", "OneByOne"),
    "hardstep.geometry": ("Biased", "Cube", "Haar", "Jitter", "Mollifier", "Orthoplex", "Simplex"),
    "hardstep.optim": (
        "Absorb",
        "AdaptiveProbes",
        "AskTell",
        "FullDecay",
        "Momentum",
        "PlanReuse",
        "PolyStep",
        "Settings",
        "WeightDecay",
        "WeightMomentum",
        "minimize",
    ),
    "hardstep.schedules": (
        "Constant",
        "Cosine",
        "Geometric",
        "Length",
        "Linear",
        "PowerDecay",
        "TimesTemperature",
    ),
    "hardstep.solvers": (
        "Blockwise",
        "Greedy",
        "Penalized",
        "RowSoftmax",
        "Sinkhorn",
        "Standardized",
        "TopK",
    ),
    "hardstep.subspaces": (
        "Adaptive",
        "Full",
        "Global",
        "HaarRows",
        "LayerWise",
        "LowRank",
        "RowWise",
        "SharedRows",
        "Sketch",
        "Sparse",
    ),
    "hardstep.training": ("Checkpoint", "EarlyStopping", "JsonlLog", "Validation", "fit"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_SUBMODULES = ("data", "nn", "presets", "tasks")

__all__ = sorted([*_MODULE_OF, *_SUBMODULES, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _SUBMODULES:
        return import_module(f"hardstep.{name}")
    raise AttributeError(f"module 'hardstep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from hardstep import data as data
    from hardstep import nn as nn
    from hardstep import presets as presets
    from hardstep import tasks as tasks
    from hardstep.errors import CapacityError as CapacityError
    from hardstep.errors import CheckpointError as CheckpointError
    from hardstep.errors import ConfigError as ConfigError
    from hardstep.errors import DataError as DataError
    from hardstep.errors import HardstepError as HardstepError
    from hardstep.errors import NonFiniteLossError as NonFiniteLossError
    from hardstep.errors import ObjectiveError as ObjectiveError
    from hardstep.evaluation import Batched as Batched
    from hardstep.evaluation import Candidates as Candidates
    from hardstep.evaluation import OneByOne as OneByOne
    from hardstep.geometry import Biased as Biased
    from hardstep.geometry import Cube as Cube
    from hardstep.geometry import Haar as Haar
    from hardstep.geometry import Jitter as Jitter
    from hardstep.geometry import Mollifier as Mollifier
    from hardstep.geometry import Orthoplex as Orthoplex
    from hardstep.geometry import Simplex as Simplex
    from hardstep.optim import Absorb as Absorb
    from hardstep.optim import AdaptiveProbes as AdaptiveProbes
    from hardstep.optim import AskTell as AskTell
    from hardstep.optim import FullDecay as FullDecay
    from hardstep.optim import Momentum as Momentum
    from hardstep.optim import PlanReuse as PlanReuse
    from hardstep.optim import PolyStep as PolyStep
    from hardstep.optim import Settings as Settings
    from hardstep.optim import WeightDecay as WeightDecay
    from hardstep.optim import WeightMomentum as WeightMomentum
    from hardstep.optim import minimize as minimize
    from hardstep.schedules import Constant as Constant
    from hardstep.schedules import Cosine as Cosine
    from hardstep.schedules import Geometric as Geometric
    from hardstep.schedules import Length as Length
    from hardstep.schedules import Linear as Linear
    from hardstep.schedules import PowerDecay as PowerDecay
    from hardstep.schedules import TimesTemperature as TimesTemperature
    from hardstep.solvers import Blockwise as Blockwise
    from hardstep.solvers import Greedy as Greedy
    from hardstep.solvers import Penalized as Penalized
    from hardstep.solvers import RowSoftmax as RowSoftmax
    from hardstep.solvers import Sinkhorn as Sinkhorn
    from hardstep.solvers import Standardized as Standardized
    from hardstep.solvers import TopK as TopK
    from hardstep.subspaces import Adaptive as Adaptive
    from hardstep.subspaces import Full as Full
    from hardstep.subspaces import Global as Global
    from hardstep.subspaces import HaarRows as HaarRows
    from hardstep.subspaces import LayerWise as LayerWise
    from hardstep.subspaces import LowRank as LowRank
    from hardstep.subspaces import RowWise as RowWise
    from hardstep.subspaces import SharedRows as SharedRows
    from hardstep.subspaces import Sketch as Sketch
    from hardstep.subspaces import Sparse as Sparse
    from hardstep.training import Checkpoint as Checkpoint
    from hardstep.training import EarlyStopping as EarlyStopping
    from hardstep.training import JsonlLog as JsonlLog
    from hardstep.training import Validation as Validation
    from hardstep.training import fit as fit
