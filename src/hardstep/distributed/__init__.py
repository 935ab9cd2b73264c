"""Workers that share the candidates of a step: the same bits on one worker, four, or a cluster."""

from hardstep.distributed.counts import Counts
from hardstep.distributed.engine import Engine
from hardstep.distributed.futures import Futures
from hardstep.distributed.patience import Patience
from hardstep.distributed.ray import Ray
from hardstep.distributed.torchrun import Peers, is_under_torchrun
from hardstep.distributed.worker import device, end_with_parent

__all__ = [
    "Counts",
    "Engine",
    "Futures",
    "Patience",
    "Peers",
    "Ray",
    "device",
    "end_with_parent",
    "is_under_torchrun",
]
