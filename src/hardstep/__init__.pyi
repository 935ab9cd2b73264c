"""The public names: what a user starts with. Each package (`hardstep.solvers`, ...) has more."""

from . import data as data
from . import distributed as distributed
from . import maxsat as maxsat
from . import nn as nn
from . import rl as rl
from . import tasks as tasks
from .errors import ConfigError as ConfigError
from .errors import HardstepError as HardstepError
from .evaluation import Batched as Batched
from .evaluation import Candidates as Candidates
from .evaluation import Incremental as Incremental
from .evaluation import OneByOne as OneByOne
from .geometry import Biased as Biased
from .geometry import Orthoplex as Orthoplex
from .geometry import Simplex as Simplex
from .optim import AskTell as AskTell
from .optim import Momentum as Momentum
from .optim import PolyStep as PolyStep
from .optim import Rule as Rule
from .optim import Settings as Settings
from .optim import WeightDecay as WeightDecay
from .optim import WeightMomentum as WeightMomentum
from .optim import minimize as minimize
from .optim import presets as presets
from .schedules import Cosine as Cosine
from .schedules import Length as Length
from .schedules import Linear as Linear
from .schedules import TimesTemperature as TimesTemperature
from .solvers import RowSoftmax as RowSoftmax
from .solvers import Sinkhorn as Sinkhorn
from .subspaces import Full as Full
from .subspaces import LayerWise as LayerWise
from .subspaces import LowRank as LowRank
from .subspaces import PerTensor as PerTensor
from .subspaces import RowWise as RowWise
from .subspaces import Scaled as Scaled
from .subspaces import Sketch as Sketch
from .training import Callback as Callback
from .training import Checkpoint as Checkpoint
from .training import EarlyStopping as EarlyStopping
from .training import JsonlLog as JsonlLog
from .training import Metric as Metric
from .training import Validation as Validation
from .training import fit as fit

__version__: str
