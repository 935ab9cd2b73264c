"""Work shared among threads: every piece once, small pieces on request, and a clean end."""

import threading
import time
from itertools import pairwise

import pytest
import torch

from hardstep._threads import share_out


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("num", [0, 1, 2, 10, 101])
@pytest.mark.parametrize("largest", [None, 1, 7, 1000])
def test_pieces_cover_everything_once_and_none_is_too_large(threads, num, largest):
    seen = []
    share_out(num, lambda first, last: seen.append((first, last)), largest)
    seen.sort()
    assert (seen[0][0], seen[-1][1]) == (0, num)
    assert all(before[1] == after[0] for before, after in pairwise(seen))
    assert all(last - first <= (largest or num) for first, last in seen)


def test_when_one_piece_fails_no_other_runs_on(threads):
    running, most = [], threading.Event()

    def run(first, last):
        if first == 0:
            raise KeyboardInterrupt
        running.append(first)
        time.sleep(0.05)
        running.remove(first)
        most.set()

    with pytest.raises(KeyboardInterrupt):
        share_out(100, run, largest_piece=1)
    assert not running
    most.clear()
    time.sleep(0.1)
    assert not most.is_set()
