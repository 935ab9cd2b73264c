"""Work shared among torch's threads, and torch kept to one of them.

The thread that asks takes its part. If it slept meanwhile, the operating system might wake all
others on one core, where they wait for each other for milliseconds.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from threading import Barrier

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use no thread but this one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    """Threads in which torch takes no more threads.

    Torch also remembers the last number set by any thread, so that ours are started here, all of
    them, and the caller's number is set again.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(size, "hardstep", _stay_alone)
    started = Barrier(size)
    wait([pool.submit(started.wait) for _ in range(size)])
    torch.set_num_threads(threads)
    return pool


def _stay_alone() -> None:
    """Let torch use no other threads from this one."""
    torch.get_num_threads()  # a thread that asks for the first time gets the number of all
    torch.set_num_threads(1)


def _forget_threads() -> None:
    """A child that was forked has the pool but none of its threads, and torch's likewise.

    Torch's next loop would wait for them for ever. With a single one it works; the child may ask
    for more, at its own risk.
    """
    if _pool.cache_info().currsize:
        torch.set_num_threads(1)
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def share_out(num: int, run: Callable[[int, int], None], largest_piece: int | None = None) -> None:
    """Call `run(first, last)` for pieces of 0..num, shared among torch's threads.

    Args:
        num: How much there is to do.
        run: Does a piece, without Python's lock for the most part. Torch has one thread in it.
        largest_piece: Of one call, so that Ctrl-C is heard between two; one call for each
            thread if left out.
    """
    threads = max(1, min(torch.get_num_threads(), num))
    pieces = threads if largest_piece is None else max(threads, -(-num // largest_piece))
    left = deque(pairwise(num * n // pieces for n in range(pieces + 1)))

    def take() -> None:
        while left:
            try:
                piece = left.popleft()
            except IndexError:  # another thread was faster
                return
            run(*piece)

    if threads == 1:
        take()
        return
    pool = _pool(torch.get_num_threads() - 1)
    others = [pool.submit(take) for _ in range(threads - 1)]
    try:
        with one_thread():
            take()
        for other in others:
            other.result()
    except BaseException:
        # Pieces that run now use what the caller frees or changes as soon as it hears of this.
        left.clear()
        wait(others)
        raise
