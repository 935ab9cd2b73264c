"""Workers that share the candidates of a step: the same bits on one worker, four, or a cluster."""

from hardstep.distributed.counts import Counts
from hardstep.distributed.engine import Engine
from hardstep.distributed.futures import Futures
from hardstep.distributed.handout import Patience

__all__ = ["Counts", "Engine", "Futures", "Patience"]
