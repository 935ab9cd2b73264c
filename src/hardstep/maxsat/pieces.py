"""Compiled loops: without threads of their own, and never long without hearing Ctrl-C.

Numba's `parallel=True` is not used: its threads end or hang a process that is forked after them
(GNU OpenMP), and a loop that it runs cannot be interrupted. Instead a loop does a range of its
output, and Python shares the ranges among the threads that the fused kernels use, too.
"""

from collections.abc import Callable
from typing import Any

from hardstep._threads import share_out

PIECE_READS = 1 << 21  # of one call: some hundredths of a second if every one misses the cache


def run_in_pieces(kernel: Callable[..., None], num: int, reads: int, *arguments: Any) -> None:
    """Call `kernel(first, last, *arguments)` for ranges of 0..num, in threads.

    Args:
        kernel: Writes what belongs to its range only.
        num: How much there is to do.
        reads: About how many numbers all of it looks at.
        arguments: Of the kernel, after the range.
    """
    share_out(num, lambda first, last: kernel(first, last, *arguments), largest_piece(num, reads))


def run_in_turn(kernel: Callable[..., None], num: int, reads: int, *arguments: Any) -> None:
    """The same, one range after the other: for a kernel that writes anywhere."""
    piece = largest_piece(num, reads)
    for first in range(0, num, piece):
        kernel(first, min(first + piece, num), *arguments)


def largest_piece(num: int, reads: int) -> int:
    """How much of `num` one call may do."""
    return max(1, num * PIECE_READS // max(num, reads, 1))
