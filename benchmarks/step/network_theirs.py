"""The worker that times the authors' package on the networks of the second table.

As in `theirs`: its documented interface, and everything not named here at its default. It starts
from our weights after their ten steps, with our temperature and our radii.

A step that takes long is ended when a share of its candidates is evaluated. Candidates come in the
order of layers, and those of later layers may cost less; so a share is taken of each layer, in a
step that searches this layer only.
"""

from contextlib import suppress
from typing import Any

import torch
from polystep import HybridSubspace, ParamLayout, PolyStepOptimizer, get_diagnostics
from torch import Tensor, nn

from benchmarks.step import networks
from benchmarks.step.batches import labeled
from benchmarks.step.network_rows import BATCH, BY_NAME, CALIBRATION, RANK, Network
from benchmarks.step.theirs import Counted, Enough, versions
from benchmarks.step.wire import serve, timed
