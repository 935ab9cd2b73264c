"""The worker that times the authors' package on the networks of the second table.

As in `theirs`: its documented interface, everything not named here at its default. Its weights are
ours after their ten steps, its radii and temperature ours. A step that would take long is ended
when a share of its candidates is evaluated.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from polystep import HybridSubspace, ParamLayout, PolyStepOptimizer, get_diagnostics
from torch import Tensor, nn

from benchmarks.step import networks
from benchmarks.step.batches import labeled
from benchmarks.step.network_rows import BATCH, BY_NAME, CALIBRATION, RANK, Network
from benchmarks.step.theirs import Counted, Enough, describe_versions
from benchmarks.step.wire import serve, timed
