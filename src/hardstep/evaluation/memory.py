"""What to do when a tile of candidates does not fit in memory: try its halves."""

from collections.abc import Callable

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Span


def is_memory_error(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on any device."""
    text = str(error)
    return (
        isinstance(error, MemoryError | torch.OutOfMemoryError)
        or "out of memory" in text
        or "can't allocate memory" in text
    )


def halving(run: Callable[[Span], Tensor], tile: Span) -> Tensor:
    """The losses of a tile; on a memory error, those of its halves."""
    try:
        return run(tile)
    except (MemoryError, RuntimeError) as error:
        length = tile.end - tile.start
        if length == 1 or not is_memory_error(error):
            raise
        halves = tile.tiles(-(-length // 2))
    return torch.cat([halving(run, half) for half in halves])
